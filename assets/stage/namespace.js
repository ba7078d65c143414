"use strict";
// The stage: draws one run of speculative decoding, live or recorded. Files are classic scripts,
// joined in the order that specviz/ui/bundle.py lists; each one adds a concept to this object.
const SpecViz = {};
