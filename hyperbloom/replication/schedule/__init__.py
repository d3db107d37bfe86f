"""When a peer is asked what: decisions without a clock, a thread, a transport or a store."""
