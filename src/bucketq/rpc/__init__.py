"""How clients and brokers talk: the messages, what carries them, and errors on the way.

``messages`` and ``transport`` are what brokers and clients are written against; they know no
network. ``grpc_transport`` is the one module that knows gRPC, and ``bucketq.proto`` what other
languages need. The simulator puts a network of its own in the same place.
"""
