//! A list of hints that a mount takes only in part: how far it came is reported.

mod support;

use std::process::Command;

#[test]
fn who_is_told_to_try_later_knows_what_was_taken() {
    let program = support::c_program("ioctl_taken", &["-std=c99", "-Wextra", "-Werror"]);
    for (segments, refused, said) in [
        ("2500", "-1", "1022 1022 456 = 0 - 2500\n"),
        ("2500", "0", "= -1 EAGAIN 0\n1022 1022 456 = 0 - 2500\n"),
        ("2500", "2", "1022 1022 = -1 EAGAIN 2044\n456 = 0 - 2500\n"),
        ("1022", "-1", "1022 = 0 - 1022\n"),
        ("0", "-1", "0 = 0 - 0\n"),
        ("0", "0", "= -1 EAGAIN 0\n0 = 0 - 0\n"),
    ] {
        let output = support::succeed(Command::new(&program).args([segments, refused]));
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{segments}, {refused}");
    }
}
