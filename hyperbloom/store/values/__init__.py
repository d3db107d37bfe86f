"""The values of feeds: their exact byte order, sets of them, what was forgotten or refused."""
