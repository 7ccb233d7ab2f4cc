"""Policy: which chats compute what, on which pages. Pure: no arrays, clock, threads or IO."""
