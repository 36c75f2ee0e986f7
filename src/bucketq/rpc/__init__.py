"""How clients and brokers talk: the messages, what carries them, and errors on the way.

``messages`` and ``transport`` are what brokers and clients are written against; they know no
network. ``grpc_transport``, with ``grpc_listener`` and ``grpc_session`` behind it, is what knows
gRPC, and ``bucketq.proto`` what other languages need. The simulator puts a network of its own in
the same place.

Between the two lie ``calls``, ``operations``, ``answers`` and ``documents`` (plain values to
protobuf and back), ``status`` (errors as gRPC statuses) and ``probe`` (who listens there).
"""

import os

# gRPC tells on standard error of every connection that a stopping server ends, which is how clients
# learn of a failover here. It looks at this when it is first imported, so nothing below can say it
# later; whoever wants to hear everything sets it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
