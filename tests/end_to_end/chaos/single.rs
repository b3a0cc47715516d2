//! One part alone that is away again and again while a run goes on.
