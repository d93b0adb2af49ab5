//! Lists of a profile's files, as other tools ask for them.
//!
//! | format | who reads it |
//! |---|---|
//! | `list` | anything: a path a line |
//! | `rules` | `foretell run --hints`: paths, and the parts that are read |
//! | `nydus` | `nydus-image create --prefetch-policy`, `nydusify convert --prefetch-patterns` |
//! | `estargz` | `nerdctl image convert --estargz-record-in` |
//! | `soci` | `soci create --prefetch-files-json` |
//! | `cvmfs` | the publisher of a CernVM-FS repository |
//!
//! A list has the files that the next run is expected to read, in the order of first use, each once. Names that are looked up
//! alone, folders, and what is not there are no files to fetch. Below a root, paths are those that they have in the image or
//! the repository whose root that folder is. What does not lie below it is counted and left out, and so is a name that the
//! format has no way to write: a line end in a list of lines, or bytes that are no UTF-8 in JSON.

mod cvmfs;
mod estargz;
mod list;
mod nydus;
mod rules;
mod soci;

use std::collections::HashSet;

use crate::profile::{Profile, Weighted};
use crate::steps::{Acts, Part};

/// A format, with one file each. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A path a line.
    List,
    /// Lines for `foretell run --hints`.
    Rules,
    /// Prefetch patterns of nydus.
    Nydus,
    /// The record file of eStargz tools.
    Estargz,
    /// The list of files of SOCI.
    Soci,
    /// A bundle of CernVM-FS.
    Cvmfs,
}

/// A file to be listed.
struct Listed {
    /// Without the root, and without a slash at its beginning if there is one.
    path: Vec<u8>,
    is_whole: bool,
    /// Parts that are read, unless it is whole; none are known if it was opened alone.
    parts: Vec<Part>,
    has_order: bool,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The list.
    pub text: Vec<u8>,
    /// Entries in it.
    pub entries: usize,
    /// Files that do not lie below the root.
    pub outside: usize,
    /// Files whose names the format cannot have.
    pub unwritable: usize,
    /// For a bundle, the file whose opening triggers it, below the root and without a slash at its beginning.
    pub trigger: Option<String>,
}

/// Lists the files of `profile`, with paths below `root` if there is one.
pub fn export(profile: &Profile, format: Format, root: Option<&[u8]>) -> Exported {
    let mut exported = Exported::default();
    let mut files = Vec::new();
    let mut seen = HashSet::new();
    for step in profile.steps.iter().filter(|step| step.is_likely() && is_file(step)) {
        // Only rules tell that a run comes back to a file.
        if format != Format::Rules && !seen.insert(&step.path) {
            continue;
        }
        let Some(path) = below(&step.path, root) else {
            exported.outside += 1;
            continue;
        };
        let listed = Listed {
            path: path.to_vec(),
            is_whole: step.is_whole(),
            parts: step.likely_parts().collect(),
            has_order: !step.acts.has(Acts::MAP),
        };
        match format.can_write(&listed) {
            true => files.push(listed),
            false => exported.unwritable += 1,
        }
    }
    exported.text = match format {
        Format::List => list::text(&files, root.is_none()),
        Format::Rules => rules::text(&files, root.is_none()),
        Format::Nydus => nydus::text(&files),
        Format::Estargz => estargz::text(&files),
        Format::Soci => soci::text(&files),
        Format::Cvmfs => cvmfs::text(&files),
    };
    exported.entries = files.len();
    let first = files.first().filter(|_| format == Format::Cvmfs);
    exported.trigger = first.map(|file| text_of(file).to_owned());
    exported
}

impl Format {
    fn can_write(self, file: &Listed) -> bool {
        let is_text = std::str::from_utf8(&file.path).is_ok();
        match self {
            Format::List => list::can_write(&file.path),
            Format::Rules => rules::can_write(file),
            Format::Nydus => nydus::can_write(&file.path),
            Format::Soci => is_text && nydus::can_write(&file.path), // It trims lines too.
            Format::Estargz | Format::Cvmfs => is_text,
        }
    }
}

/// Whether data of a file is read in this step, or at least it is opened.
fn is_file(step: &Weighted) -> bool {
    let is_opened = step.acts.has(Acts::OPEN) && !step.acts.has(Acts::FAIL | Acts::LIST);
    is_opened || step.acts.has(Acts::READ | Acts::END | Acts::MAP) || !step.parts.is_empty()
}

/// `path` below `root`, without a slash at its beginning.
fn below<'a>(path: &'a [u8], root: Option<&[u8]>) -> Option<&'a [u8]> {
    let root = root.unwrap_or_default();
    let root = root.strip_suffix(b"/").unwrap_or(root);
    path.strip_prefix(root)?.strip_prefix(b"/").filter(|rest| !rest.is_empty())
}

/// The path of a file whose name is text.
fn text_of(file: &Listed) -> &str {
    std::str::from_utf8(&file.path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{Run, Step};

    /// A path, what was done to it, and the parts that were read.
    type Given<'a> = (&'a [u8], Acts, &'a [(u64, u64)]);

    fn profile() -> Profile {
        let read = Acts::OPEN | Acts::READ;
        let all: [Given<'_>; 10] = [
            (b"/img", Acts::LIST, &[]),
            (b"/img/bin/tool", read | Acts::MAP, &[(0, 8192), (16384, 24576)]),
            (b"/img/lib/none.so", Acts::OPEN | Acts::FAIL, &[]),
            (b"/img/data \"x\".bin", read | Acts::END, &[(0, 8192)]),
            (b"/home/a/notes", read, &[(8192, 16384)]),
            (b"/img/two\nlines", read, &[(0, 8192)]),
            (b"/img/\xff", read | Acts::END, &[(0, 8192)]),
            (b"/img/looked", Acts::LOOK, &[]),
            (b"/img/opened", Acts::OPEN, &[]),
            (b"/img/bin/tool", read | Acts::MAP, &[(32768, 40960)]),
        ];
        let step = |&(path, acts, parts): &Given<'_>| Step {
            path: path.into(),
            acts,
            parts: parts.iter().map(|&(start, end)| Part { start, end }).collect(),
            at_ms: 0,
        };
        let mut profile = Profile::new("x".into());
        let run = Run { steps: all.iter().map(step).collect(), is_cut: false };
        profile.learn(run, |_, _| true, true);
        profile
    }

    fn exported(format: Format, root: Option<&str>) -> (Vec<u8>, [usize; 3]) {
        let exported = export(&profile(), format, root.map(str::as_bytes));
        (exported.text, [exported.entries, exported.outside, exported.unwritable])
    }

    #[test]
    fn a_list_has_each_file_once_in_the_order_of_first_use() {
        let (text, counts) = exported(Format::List, None);
        let lines: [&[u8]; 5] = [
            b"/img/bin/tool",
            b"/img/data \"x\".bin",
            b"/home/a/notes",
            b"/img/\xff",
            b"/img/opened",
        ];
        assert_eq!(text, [lines.join(&b'\n'), b"\n".to_vec()].concat());
        assert_eq!(counts, [5, 0, 1]);
        let (text, counts) = exported(Format::List, Some("/img/"));
        assert_eq!(text, b"bin/tool\ndata \"x\".bin\n\xff\nopened\n");
        assert_eq!(counts, [4, 1, 1]);
    }

    #[test]
    fn a_root_is_a_folder_and_no_beginning_of_a_name() {
        assert_eq!(exported(Format::List, Some("/im")).1, [0, 6, 0]);
        assert_eq!(exported(Format::List, Some("/")).1, [5, 0, 1]);
    }

    #[test]
    fn each_tool_gets_what_it_asks_for() {
        let text = |format, root| String::from_utf8_lossy(&exported(format, root).0).into_owned();
        assert_eq!(
            text(Format::Nydus, Some("/img")),
            "/bin/tool\n/data \"x\".bin\n/\u{fffd}\n/opened\n"
        );
        assert_eq!(
            text(Format::Estargz, Some("/img")),
            "{\"path\":\"bin/tool\"}\n{\"path\":\"data \\\"x\\\".bin\"}\n{\"path\":\"two\\nlines\"}\n{\"path\":\"opened\"}\n"
        );
        assert_eq!(
            text(Format::Soci, Some("/img")),
            "[\n\"/bin/tool\",\n\"/data \\\"x\\\".bin\",\n\"/opened\"\n]\n"
        );
        let bundle: serde_json::Value =
            serde_json::from_str(&text(Format::Cvmfs, Some("/img"))).expect("JSON");
        assert_eq!(bundle["name"], "CVMFS_BUNDLE");
        assert_eq!(bundle["dependencies"].as_array().map(Vec::len), Some(4));
        assert_eq!(bundle["dependencies"][2], "/two\nlines");
        assert_eq!(
            export(&profile(), Format::Cvmfs, Some(b"/img")).trigger.as_deref(),
            Some("bin/tool")
        );
    }

    #[test]
    fn rules_have_parts_and_come_back_to_a_file() {
        let (text, counts) = exported(Format::Rules, Some("/img"));
        let lines = [
            "{\"order\":\"any\",\"path\":\"bin/tool\",\"segments\":[[0,8192],[16384,8192]]}",
            "data \"x\".bin",
            "{\"path\":\"two\\nlines\",\"segments\":[[0,8192]]}",
            "\u{fffd}",
            "{\"path\":\"bin/tool\",\"segments\":[[32768,8192]]}",
        ];
        assert_eq!(String::from_utf8_lossy(&text), lines.join("\n") + "\n");
        assert_eq!(counts, [5, 1, 1], "what was opened alone has nothing to be read");
    }

    #[test]
    fn a_profile_without_files_makes_valid_lists() {
        let none = Profile::new("x".into());
        let text = |format| String::from_utf8(export(&none, format, None).text).expect("text");
        assert_eq!(text(Format::List), "");
        assert_eq!(text(Format::Soci), "[]\n");
        assert!(text(Format::Cvmfs).contains("\"dependencies\":[]"));
    }
}
