"""The protocol between clients and brokers: messages, transport and errors.

Brokers and clients depend on ``messages`` and ``transport``, which know no network. ``protobuf``
encodes the messages, and its ``bucketq.proto`` is what other languages need. ``grpc`` is the
transport; the simulator replaces it by a network of its own.
"""
