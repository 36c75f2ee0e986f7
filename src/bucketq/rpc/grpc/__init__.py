"""gRPC as a ``Transport``. Only this package imports gRPC."""

import os

# gRPC logs every connection that a stopping server ends, on standard error; a failover consists of
# that. It reads this variable when it is first imported, so it cannot be set later. Users who want
# to see everything set it themselves.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
