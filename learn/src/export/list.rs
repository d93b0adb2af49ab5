//! A path a line, as `xargs -d '\n'`, `vmtouch -b` and `foretell run --hints` read it.

use super::Listed;

pub(super) fn can_write(path: &[u8]) -> bool {
    !path.contains(&b'\n')
}

/// Paths without a root begin with a slash.
pub(super) fn text(files: &[Listed], is_absolute: bool) -> Vec<u8> {
    let slash: &[u8] = if is_absolute { b"/" } else { b"" };
    files.iter().flat_map(|file| [slash, &file.path, b"\n"].concat()).collect()
}
