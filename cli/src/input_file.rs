//! Reading of small files as a whole, up to a limit: a path may lead to something endless, such as `/dev/zero`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::size;

/// The content of the file.
///
/// # Errors
/// The file cannot be opened or read, or has more than `most_bytes` bytes.
pub(crate) fn read(path: impl AsRef<Path>, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(most_bytes + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most_bytes {
        return Err(io::Error::other(format!("is larger than {}", size::display(most_bytes))));
    }
    Ok(content)
}

/// The content of the file, as text.
///
/// # Errors
/// As for [`read`], and if the content is not UTF-8.
pub(crate) fn read_text(path: impl AsRef<Path>, most_bytes: u64) -> io::Result<String> {
    let content = read(path, most_bytes)?;
    String::from_utf8(content).map_err(|_| io::Error::other("is not text (UTF-8)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let error = read("/dev/zero", 1 << 20).expect_err("it has no end");
        assert_eq!(error.to_string(), "is larger than 1 MiB");
        assert!(read("/dev/null", 0).is_ok_and(|content| content.is_empty()));
    }
}
