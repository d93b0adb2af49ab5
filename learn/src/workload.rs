//! Which runs are runs of the same workload.
//!
//! A run has two names. The *exact* one is of its command line and its folder. The *alike* one is of the shape of its command
//! line: options without their values, numbers without their digits, and words that name files by their extensions alone. Runs
//! of `cc -c a.c` and of `cc -c b.c` are alike, and so are two of `python3 train.py` with another `--seed`.
//!
//! A name that the user gives (`--workload`) stands for both.
//!
//! Keys are of the words as they are. Names for people are without [secrets](masking) and names that are never learned.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::masking::{self, MASK};
use crate::private::Private;
use crate::profile::Kind;

/// Characters of a name for people.
const NAME_MAX: usize = 200;

/// Bytes of a word that are looked at for a name.
const NAMED_MAX_BYTES: usize = 4096;

/// A word that is longer tells more than a shape would: it is a program by itself (`sh -c`, `python3 -c`).
const WORD_MAX_BYTES: usize = 64;

/// The names of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// For people.
    pub name: String,
    /// The command line without what differs from run to run, for people.
    pub shape: String,
    /// Whether the user has named the workload, or it is of a command line.
    pub kind: Kind,
    /// The folder of the command line; empty if the user has named the workload.
    pub folder: Vec<u8>,
    /// The key of this very command.
    pub exact: Vec<u8>,
    /// The key of commands like it; the same if the user has named the workload.
    pub alike: Vec<u8>,
}

impl Workload {
    /// Of a command line that is run in `folder`. Its names are without `private` ones.
    pub fn of_command(command: &[OsString], folder: &Path, private: &Private) -> Self {
        let mut exact = b"exact".to_vec();
        let words = command.iter().map(OsString::as_os_str);
        for word in [folder.as_os_str()].into_iter().chain(words) {
            exact.push(0);
            exact.extend_from_slice(&digest(word.as_bytes()).to_le_bytes());
        }
        let words = shown_words(command, private);
        let mut alike = b"alike".to_vec();
        let (mut before, mut shapes) = (None, Vec::new());
        for (at, (word, shown)) in command.iter().zip(&words).enumerate() {
            let shape_of =
                |word: &OsStr| if at == 0 { word.as_bytes().to_vec() } else { shape(word) };
            let shape = shape_of(word);
            if before.as_ref() != Some(&shape) {
                alike.push(0);
                alike.extend_from_slice(&digest(&shape).to_le_bytes());
                let shown = shape_of(OsStr::new(shown));
                shapes.push(String::from_utf8_lossy(&shown).into_owned());
            }
            before = Some(shape);
        }
        let exact = digest(&exact).to_le_bytes().to_vec();
        let alike = digest(&alike).to_le_bytes().to_vec();
        let folder = folder.as_os_str().as_bytes().to_vec();
        let (name, shape) = (shown(&words.join(" ")), shown(&shapes.join(" ")));
        Workload { name, shape, kind: Kind::Exact, folder, exact, alike }
    }

    /// Of this name, which the user has given.
    pub fn named(name: &str) -> Self {
        let key = [b"named\0", name.as_bytes()].concat();
        let key = digest(&key).to_le_bytes().to_vec();
        let name = cut(name, NAME_MAX);
        let (shape, kind, folder) = (name.clone(), Kind::Named, Vec::new());
        Workload { name, shape, kind, folder, exact: key.clone(), alike: key }
    }

    /// The same, with another name for people.
    pub(crate) fn called(self, name: &str) -> Self {
        Workload { name: name.to_owned(), shape: name.to_owned(), ..self }
    }
}

/// A word without what differs from run to run.
fn shape(word: &OsStr) -> Vec<u8> {
    let word = word.as_bytes();
    let option = word.split(|&byte| byte == b'=').next().filter(|_| word.starts_with(b"-"));
    let names_file = word.iter().any(|&byte| byte == b'/' || byte == b'.');
    match option {
        Some(option) => option.to_vec(),
        None if word.len() > WORD_MAX_BYTES && word.contains(&b' ') => word.to_vec(),
        None if names_file => {
            let extension = Path::new(OsStr::from_bytes(word)).extension();
            [b"*.", extension.unwrap_or_default().as_bytes()].concat()
        }
        None => {
            let mut shape: Vec<u8> =
                word.iter().map(|byte| if byte.is_ascii_digit() { b'#' } else { *byte }).collect();
            shape.dedup_by(|a, b| (*a, *b) == (b'#', b'#'));
            shape
        }
    }
}

/// The words without secrets.
fn shown_words(command: &[OsString], private: &Private) -> Vec<String> {
    let text = |word: &OsString| {
        let bytes = word.as_bytes();
        Cow::from(String::from_utf8_lossy(&bytes[..bytes.len().min(NAMED_MAX_BYTES)]).into_owned())
    };
    masking::words(command.iter().map(text), Some(private))
}

/// The words in one line.
fn shown(line: &str) -> String {
    let clean: String =
        line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    cut(&clean, NAME_MAX)
}

/// The first `most` characters of `text`. If there are more, the last one stands for them.
pub fn cut(text: &str, most: usize) -> String {
    match text.chars().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(MASK.chars()).collect(),
    }
}

/// 64 bits of `bytes` by FNV-1a. Two workloads with one digest would share a profile, which costs speed alone.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str, folder: &str) -> Workload {
        let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Workload::of_command(&command, Path::new(folder), &Private::new(["patients"].into_iter()))
    }

    #[test]
    fn the_same_command_is_the_same_workload_only_in_its_folder() {
        assert_eq!(of("cc -c a.c", "/x"), of("cc -c a.c", "/x"));
        assert_ne!(of("cc -c a.c", "/x").exact, of("cc -c a.c", "/y").exact);
        assert_ne!(of("cc -c a.c", "/x").exact, of("cc -c b.c", "/x").exact);
    }

    #[test]
    fn commands_are_alike_that_differ_in_what_differs_from_run_to_run() {
        let alike = |a, b| of(a, "/x").alike == of(b, "/y").alike;
        assert!(alike("cc -c a.c", "cc -c src/b.c"));
        assert!(alike("md5sum a.bin b.bin", "md5sum c.bin d.bin e.bin"));
        assert!(alike("python3 train --seed=1 -n 10", "python3 train --seed=22 -n 200"));
        assert!(!alike("cc -c a.c", "cc -E a.c"));
        assert!(!alike("cc -c a.c", "gcc -c a.c"));
        assert!(!alike("cc -c a.c", "cc -c a.h"));
        assert!(!alike("git status", "git log"));
    }

    #[test]
    fn a_shape_is_shown_without_what_differs() {
        assert_eq!(of("cc -c -j8 --out=x a.c b.c", "/x").shape, "cc -c -j8 --out *.c");
        assert_eq!(of("train 17 data", "/x").shape, "train # data");
    }

    #[test]
    fn a_given_name_stands_for_both() {
        let named = Workload::named("nightly");
        assert_eq!((&named.exact, named.name.as_str()), (&named.alike, "nightly"));
        assert_ne!(named.exact, Workload::named("daily").exact);
    }
    #[test]
    fn names_are_without_secrets_and_keys_tell_them_apart() {
        let one = of("curl --token abc https://me:pw@host patients/a.txt", "/x");
        assert_eq!(one.name, "curl --token … https://…@host …");
        assert_eq!(one.shape, "curl --token … *. …");
        assert_ne!(one.exact, of("curl --token abd https://me:pw@host patients/a.txt", "/x").exact);
        let again = of(&one.name, "/x");
        assert_eq!((again.name, again.shape), (one.name, one.shape));
    }

    #[test]
    fn a_long_name_is_cut_with_a_sign() {
        let long = of(&"é".repeat(NAME_MAX + 1), "/x").name;
        assert!(long.chars().count() == NAME_MAX && long.ends_with("é…"));
        assert_eq!(of(&"é".repeat(NAME_MAX), "/x").name, "é".repeat(NAME_MAX));
        assert!(Workload::named(&"n".repeat(NAME_MAX + 1)).name.ends_with("n…"));
    }
}
