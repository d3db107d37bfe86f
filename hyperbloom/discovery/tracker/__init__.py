"""The topic tracker: a topic's records on the DHT, and the procedures by which its nodes meet.

The records (`topic`, `sealing`, `content`, `record`, `reading`) and the decisions (`procedures`)
are pure; `topic_records`, `bootstrap`, `ticker` and `tracker` put timers around them.
"""
