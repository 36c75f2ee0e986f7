"""How clients and brokers talk: the messages, what carries them, and errors on the way.

``messages`` and ``transport`` are what brokers and clients are written against; they know no
network. ``protobuf`` encodes the messages, and its ``bucketq.proto`` is what other languages need.
``grpc`` carries them. The simulator puts a network of its own in the same place.
"""
