"""Small tables beside the values: links, addresses of peers, denied keys, who speaks Noise."""
