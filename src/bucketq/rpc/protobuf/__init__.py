"""One codec: messages, requests and answers to protobuf and back. It knows no gRPC."""
