"""What is measured: prompt suites, engines beside each other, costs, predictions, perplexity."""
