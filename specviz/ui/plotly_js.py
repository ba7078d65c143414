"""plotly.js for the plots: out of the installed plotly package, never a copy of our own, never from another host."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

# Relative, so that it also holds behind a proxy's prefix; the version lets browsers keep the file for good.
PLOTLY_ADDRESS = f"specviz/plotly-{version('plotly')}.min.js"
CACHE_CONTROL = "public, max-age=31536000, immutable"


def plotly_path() -> Path:
    """Where the installed package has plotly.js; the package itself is not imported."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("plotly is not installed")
    return Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


@cache
def plotly_script() -> str:
    """The text of plotly.js."""
    return plotly_path().read_text(encoding="utf-8")


def plotly_route() -> Route:
    """Serves plotly.js under `PLOTLY_ADDRESS`."""
    from starlette.responses import FileResponse
    from starlette.routing import Route

    def serve(request: Request) -> Response:
        return FileResponse(plotly_path(), media_type="text/javascript", headers={"Cache-Control": CACHE_CONTROL})

    return Route(f"/{PLOTLY_ADDRESS}", serve)
