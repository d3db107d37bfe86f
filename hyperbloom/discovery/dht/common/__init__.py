"""What every part of the DHT node speaks of: ids, contacts, KRPC packets, errors."""
