"""Where a feed meets the tools that people run: outputs, inputs and hooks of a running node.

An *output* keeps a file of another tool up to date, an *input* takes into a feed what others
publish, a *hook* tells a program or a web server what is new. Each stands in the configuration
under a name and runs by itself; `service` has all of them. What a file looks like is decided in
`hyperbloom.outputs`, what is read from one in `hyperbloom.inputs`.
"""
