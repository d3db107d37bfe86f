"""Generated from proto/hyperbloom.proto by scripts/proto; not to be edited."""
