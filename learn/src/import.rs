//! Profiles that were not learned here: from a list of files, or from a machine on which folders have other names.

use std::collections::HashSet;
use std::sync::Arc;

use crate::codec::TEXT_MAX_BYTES;
use crate::profile::{Profile, STEPS_MAX, WEIGHT_FIRST, Weighted};
use crate::recorder::BLOCK_BYTES;
use crate::steps::{Acts, Part};

/// Folders that have moved. The first one that a path lies in counts.
#[derive(Clone, Debug, Default)]
pub struct Moves(Vec<(Vec<u8>, Vec<u8>)>);

impl Moves {
    /// From pairs of an old and a new absolute folder.
    pub fn new(pairs: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let trimmed = |mut path: Vec<u8>| {
            while path.ends_with(b"/") {
                path.pop();
            }
            path
        };
        Moves(pairs.map(|(old, new)| (trimmed(old), trimmed(new))).collect())
    }

    /// Where `path` is now; `None` if it lies in none of the folders.
    pub fn of(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.0.iter().find_map(|(old, new)| {
            let rest = path.strip_prefix(&old[..])?;
            let is_below = rest.is_empty() || rest.starts_with(b"/");
            is_below.then(|| match [&new[..], rest].concat() {
                path if path.is_empty() => b"/".to_vec(),
                path => path,
            })
        })
    }

    /// Has the paths of `profile` moved. Those that become too long are left out.
    pub fn apply(&self, profile: &mut Profile) {
        if let Some(folder) = self.of(&profile.folder) {
            profile.folder = folder;
        }
        for step in &mut profile.steps {
            if let Some(path) = self.of(&step.path) {
                step.path = path.into();
            }
        }
        profile.steps.retain(|step| step.path.len() <= TEXT_MAX_BYTES);
    }
}

/// The paths of a list, and how many of its lines were left out: names too long, and those beyond [`STEPS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Absolute paths in their order, each once.
    pub paths: Vec<Arc<[u8]>>,
    /// Lines left out.
    pub left_out: usize,
}

/// Reads a list of a path a line. Relative ones lie in `folder`, which is absolute. Empty lines are skipped.
///
/// # Errors
/// The number of a line that is none, and why.
pub fn paths(text: &[u8], folder: &[u8]) -> Result<Paths, (usize, &'static str)> {
    let mut list = Paths::default();
    let mut seen = HashSet::new();
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line {
            [] => continue,
            [b'{', ..] => return Err((at + 1, "is an object; a list has a path a line")),
            _ if line.contains(&0) => return Err((at + 1, "has a zero byte, so this is no list")),
            _ => {}
        }
        let path: Arc<[u8]> = match line.starts_with(b"/") {
            true => tidy(line).into(),
            false => tidy(&[folder, b"/", line].concat()).into(),
        };
        if seen.contains(&path) {
            continue;
        }
        if path.len() > TEXT_MAX_BYTES || list.paths.len() == STEPS_MAX {
            list.left_out += 1;
            continue;
        }
        seen.insert(Arc::clone(&path));
        list.paths.push(path);
    }
    Ok(list)
}

/// An absolute path without empty parts and dots. Two dots stay: the name before them may be a link.
fn tidy(path: &[u8]) -> Vec<u8> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !matches!(name, [] | [b'.']));
    let tidy: Vec<u8> = names.flat_map(|name| [b"/", name].concat()).collect();
    if tidy.is_empty() { b"/".to_vec() } else { tidy }
}

/// What is at a path of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    /// A file of so many bytes.
    File(u64),
    /// A folder.
    Folder,
    /// Nothing, as far as is known.
    Unknown,
}

/// The profile of a workload that will read these files from the first byte to the last, as if one run had.
pub fn profile(name: String, paths: impl Iterator<Item = (Arc<[u8]>, There)>) -> Profile {
    let step = |(path, there): (Arc<[u8]>, There)| {
        let (acts, bytes) = match there {
            There::File(0) => (Acts::OPEN, 0),
            There::File(bytes) => (Acts::OPEN | Acts::READ | Acts::END, bytes),
            There::Folder => (Acts::LIST, 0),
            There::Unknown => (Acts::OPEN | Acts::READ | Acts::END, BLOCK_BYTES),
        };
        let end = bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
        let parts = (end > 0).then_some((Part { start: 0, end }, WEIGHT_FIRST));
        let parts = parts.into_iter().collect();
        Weighted { path, acts, at_ms: 0, seen: 0, weight: WEIGHT_FIRST, parts }
    };
    Profile { steps: paths.map(step).collect(), ..Profile::new(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(pairs: &[(&str, &str)]) -> Moves {
        Moves::new(pairs.iter().map(|(old, new)| (old.as_bytes().into(), new.as_bytes().into())))
    }

    #[test]
    fn folders_move_as_a_whole() {
        let moves = moves(&[("/a/b", "/x"), ("/a/", "/y/"), ("/r", "/")]);
        for (path, is) in [
            ("/a/b/c", Some("/x/c")),
            ("/a/b", Some("/x")),
            ("/a/bc", Some("/y/bc")),
            ("/b/a", None),
            ("/r", Some("/")),
            ("/r/s", Some("/s")),
        ] {
            assert_eq!(moves.of(path.as_bytes()).as_deref(), is.map(str::as_bytes), "{path}");
        }
        let root = Moves::new([(b"/".to_vec(), b"/mnt".to_vec())].into_iter());
        assert_eq!(root.of(b"/etc/x").as_deref(), Some(&b"/mnt/etc/x"[..]));
    }

    #[test]
    fn a_list_has_a_path_a_line() {
        let text = b"/a//b/./c\r\n\nrel/x\n/a/b/c\n/\xff\n../y";
        let list = paths(text, b"/home").expect("a list");
        let found: Vec<&[u8]> = list.paths.iter().map(|path| &**path).collect();
        let is: [&[u8]; 4] = [b"/a/b/c", b"/home/rel/x", b"/\xff", b"/home/../y"];
        assert_eq!((found, list.left_out), (is.to_vec(), 0));
        assert_eq!(paths(b"/a\n{\"path\": 1}", b"/").expect_err("an object").0, 2);
        assert_eq!(paths(b"/a\0b", b"/").expect_err("a zero").0, 1);
        let long = [b"/".to_vec(), vec![b'a'; TEXT_MAX_BYTES]].concat();
        assert_eq!(paths(&long, b"/").expect("a list").left_out, 1);
    }

    #[test]
    fn what_is_listed_is_read_as_a_whole() {
        let path: Arc<[u8]> = b"/a"[..].into();
        let steps = [There::File(10_000), There::File(0), There::Folder, There::Unknown];
        let profile =
            profile("x".into(), steps.map(|there| (Arc::clone(&path), there)).into_iter());
        let whole: Vec<bool> = profile.steps.iter().map(Weighted::is_whole).collect();
        assert_eq!(whole, [true, false, false, true]);
        assert_eq!(profile.steps[0].likely_bytes(), 16384);
        assert!(profile.steps.iter().all(Weighted::is_likely) && profile.runs == 0);
    }
}
