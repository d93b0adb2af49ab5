//! Hints from a command line: `grep pattern FILES…` names the files that it will read.
//!
//! Every word that is not an option may name a file. So may the part after an `=`, in options and other words (`--file=list`,
//! `if=image`). The lookup decides whether it does. The policy makes lookups in parallel and ahead; a check here would wait for
//! the device once for each word. The order is that of the command line. The program itself, `argv[0]`, is not disclosed: it is
//! read before foretell could help.
//!
//! Folders are disclosed for programs that are known to read whole trees when told to.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{ByDefault, Certainty, Disclosure, Kind};

/// See the [module](self).
pub const KIND: Kind = Kind::ByDefault(ByDefault {
    on: "hint-args",
    help: "Take existing files named in PROGRAM's arguments as hints, in their order (the default); also folders, for programs \
           known to recurse (grep -r, tar c, cp -a, ...)",
    off: "no-hint-args",
    help_off: "Do not take hints from PROGRAM's arguments",
    open: |setting| Box::new(disclosures(setting.command, setting.working_folder).map(Ok)),
});

/// When a program reads the whole tree below a folder that it is given.
enum Recursion {
    /// Always.
    Always,
    /// With one of these letters among its short options, or one of these long options.
    With { letters: &'static [u8], words: &'static [&'static str] },
}

/// Programs known to read folders, by the last component of `argv[0]`.
const RECURSIVE_PROGRAMS: [(&str, Recursion); 13] = [
    ("grep", GREP),
    ("egrep", GREP),
    ("fgrep", GREP),
    ("zgrep", GREP),
    ("rg", Recursion::Always),
    ("ag", Recursion::Always),
    ("ack", Recursion::Always),
    ("tar", Recursion::With { letters: b"cru", words: &["--create", "--append", "--update"] }),
    ("cp", Recursion::With { letters: b"rRa", words: &["--recursive", "--archive"] }),
    ("rsync", Recursion::With { letters: b"ra", words: &["--recursive", "--archive"] }),
    ("diff", Recursion::With { letters: b"r", words: &["--recursive"] }),
    ("zip", Recursion::With { letters: b"r", words: &["--recurse-paths"] }),
    ("md5deep", Recursion::With { letters: b"r", words: &[] }),
];

const GREP: Recursion = Recursion::With {
    letters: b"rR",
    words: &["--recursive", "--dereference-recursive", "--directories=recurse"],
};

/// The disclosures of the command line `argv`, run in `working_folder`. They are made lazily, since the folder's name in front
/// of each word may be much longer than the command line. Without a working folder (it was removed) only absolute paths count.
pub fn disclosures(
    argv: Vec<OsString>,
    working_folder: Option<PathBuf>,
) -> impl Iterator<Item = Disclosure> + Send {
    let certainty = match argv.split_first() {
        Some((program, arguments)) if recurses(program, arguments) => Certainty::MaybeTree,
        _ => Certainty::MaybeFile,
    };
    let mut options_end = false;
    argv.into_iter().skip(1).flat_map(move |argument| {
        let word = argument.as_bytes();
        let ends_options = !options_end && word == b"--";
        let is_name = options_end || !word.starts_with(b"-");
        options_end |= ends_options;
        let name = is_name.then_some(word);
        let value = word.iter().position(|&byte| byte == b'=').map(|at| &word[at + 1..]);
        let candidates = name.into_iter().chain(value).filter(|_| !ends_options);
        let path = |candidate: &[u8]| {
            let is_path = !candidate.is_empty() && candidate.len() < libc::PATH_MAX as usize;
            let path = Path::new(OsStr::from_bytes(candidate));
            match &working_folder {
                _ if !is_path => None,
                Some(folder) => Some(folder.join(path)),
                None => path.is_absolute().then(|| path.to_owned()),
            }
        };
        let found: Vec<PathBuf> = candidates.filter_map(path).collect();
        found.into_iter().map(move |path| Disclosure::whole_file(path, certainty))
    })
}

fn recurses(program: &OsStr, arguments: &[OsString]) -> bool {
    let name = Path::new(program).file_name().unwrap_or(program);
    let known = RECURSIVE_PROGRAMS.iter().find(|(known, _)| name == *known);
    match known {
        None => false,
        Some((_, Recursion::Always)) => true,
        Some((_, Recursion::With { letters, words })) => {
            // `tar cf archive folder`: the first word may be a bundle of options without a dash.
            let bundle = arguments.first().filter(|_| name == "tar");
            let options = arguments.iter().filter(|word| word.as_bytes().starts_with(b"-"));
            options.chain(bundle).any(|word| {
                let long = word.as_bytes().starts_with(b"--");
                words.iter().any(|known| word == known)
                    || (!long && word.as_bytes().iter().any(|letter| letters.contains(letter)))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(line: &str) -> (Vec<PathBuf>, bool) {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let found: Vec<Disclosure> = disclosures(argv, Some("/here".into())).collect();
        let tree = found.iter().any(|disclosure| disclosure.certainty == Certainty::MaybeTree);
        (found.into_iter().map(|disclosure| disclosure.path).collect(), tree)
    }

    #[test]
    fn words_that_are_no_options_may_be_files_in_their_order() {
        let (found, tree) = paths("grep -n needle b.txt /abs/a.txt --file=list -- -dash");
        let expected = ["/here/needle", "/here/b.txt", "/abs/a.txt", "/here/list", "/here/-dash"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(!tree);
    }

    #[test]
    fn values_behind_an_equals_sign_count_with_or_without_dashes() {
        let (found, _) = paths("dd if=image of=/dev/null");
        let expected = ["/here/if=image", "/here/image", "/here/of=/dev/null", "/dev/null"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn without_a_working_folder_absolute_paths_are_left() {
        let argv = ["cat", "a", "/b", "--list=c", "--list=/d"].map(OsString::from);
        let found = disclosures(argv.into(), None).map(|disclosure| disclosure.path);
        assert_eq!(found.collect::<Vec<_>>(), ["/b", "/d"].map(PathBuf::from));
    }

    #[test]
    fn folders_count_for_programs_told_to_recurse() {
        for line in [
            "grep -rn x .",
            "/usr/bin/grep --recursive x .",
            "rg x",
            "rg x .",
            "tar cf - folder",
            "tar -czf a.tgz folder",
            "cp -a one two",
        ] {
            // `rg x` has one word and would search the working folder; the word is a candidate.
            assert!(paths(line).1, "{line}");
        }
        for line in ["grep x .", "tar xf archive", "cat -r folder", "find . -name x"] {
            assert!(!paths(line).1, "{line}");
        }
    }
}
