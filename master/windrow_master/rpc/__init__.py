"""Thin gRPC servicers: they turn requests into commands and replies into messages, and decide nothing."""
