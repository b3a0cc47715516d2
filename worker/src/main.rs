//! digestd.
fn main() {}
