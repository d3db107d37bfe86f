"""The shapes of what the API takes and answers: forms, and nothing of the node behind them.

From these types follow the check of a body (`http.checking`), the description of the API
(`http.openapi`) and the client's types. Byte strings (values, keys, links) are hex; times are
seconds since 1970 (null: never).
"""

__all__: list[str] = []
