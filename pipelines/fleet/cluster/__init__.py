"""A cluster of controllers: each member offers its hosts, each asker's fleet may use them."""
