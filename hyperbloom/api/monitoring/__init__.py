"""What is measured and told of the running node: metrics, the reactor's lag, recent errors."""
