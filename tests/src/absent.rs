//! Parts of the machine that a test needs and may not find.

use std::io::Write;

/// Set to `1` where everything is installed: an absent part is then a failure.
pub const REQUIRE_ALL: &str = "DIGESTD_TEST_REQUIRE_ALL";

/// Says in one line that a test could not run because `part` is absent, and how to get it.
///
/// # Panics
/// Where the environment says that everything is there (`DIGESTD_TEST_REQUIRE_ALL=1`).
#[allow(clippy::panic, reason = "an absent part is a failed test where all parts are required")]
pub fn absent(part: &str, not_tested: &str, how_to_get_it: &str) {
    let line = format!("not tested: {not_tested}, for want of {part}; to get it: {how_to_get_it}");
    assert!(std::env::var(REQUIRE_ALL).as_deref() != Ok("1"), "{line}");
    say(&line);
}

/// Says in one line that a test did not run because it needs what no machine can install, such as
/// somebody's account, and how to have it run.
pub fn skipped(not_tested: &str, how_to_test_it: &str) {
    say(&format!("not tested: {not_tested}; to test it: {how_to_test_it}"));
}

/// Past the capture of a test's output: the test passes, and its output is not shown.
fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").ok();
}
