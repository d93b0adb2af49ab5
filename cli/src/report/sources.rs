//! What each source of hints could have known before a file was touched, by the rules of `foretell run`, told from a recording.
//!
//! | source | knows |
//! |---|---|
//! | arguments | files named on the command line of a program of the run, and all below a folder named there |
//! | folder walk | files and names of a folder that was listed before |
//! | mapped in order | parts of a mapped file that follow where the last one ended |
//! | earlier run | what an earlier run has read; all that is on a disk, if none is given |
//! | kernel | reads that go on where the last one ended: the kernel's own read-ahead, to compare with |
//!
//! Shares are upper bounds: a source may know too late.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foretell_manager::learn::private::Private;
use foretell_manager::learn::profile::Profile;
use foretell_manager::learn::recording::{Meta, without_dots};

/// The sources, in the order in which they are shown.
pub(super) const NAMES: [&str; 5] =
    ["arguments", "folder walk", "mapped in order", "earlier run", "kernel"];

/// Which sources know: a bit for each of [`NAMES`].
pub(super) type KnownBy = u8;

pub(super) const ARGUMENTS: KnownBy = 1;
pub(super) const WALK: KnownBy = 2;
pub(super) const MAPPED: KnownBy = 4;
pub(super) const EARLIER: KnownBy = 8;
pub(super) const KERNEL: KnownBy = 16;

/// The sources of foretell: all but the kernel.
pub(super) const FORETELL: KnownBy = ARGUMENTS | WALK | MAPPED | EARLIER;

/// Parts of a file, from the first byte to the one behind the last; `None`: all of it.
type Parts = Option<Vec<(u64, u64)>>;

/// What an earlier run has read.
#[derive(Debug)]
pub(super) struct Earlier(HashMap<Arc<[u8]>, Parts>);

impl Earlier {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut known: HashMap<Arc<[u8]>, Parts> = HashMap::new();
        for step in &profile.steps {
            let parts = known.entry(Arc::clone(&step.path)).or_insert_with(|| Some(Vec::new()));
            if step.is_whole() {
                *parts = None;
            }
            if let Some(parts) = parts {
                parts.extend(step.likely_parts().map(|part| (part.start, part.end)));
            }
        }
        known.values_mut().flatten().for_each(|parts| parts.sort_unstable());
        Earlier(known)
    }

    fn has_name(&self, path: &[u8]) -> bool {
        self.0.contains_key(path)
    }

    /// Whether it has read the byte at `start`.
    fn has(&self, path: &[u8], start: u64) -> bool {
        match self.0.get(path) {
            None => false,
            Some(None) => true,
            Some(Some(parts)) => {
                let next = parts.partition_point(|&(begin, _)| begin <= start);
                parts[..next].iter().rev().take(4).any(|&(_, end)| start < end)
            }
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Sources {
    arguments: HashSet<Arc<[u8]>>,
    listed: HashSet<Arc<[u8]>>,
    private: Private,
    earlier: Option<Earlier>,
}

impl Sources {
    pub(super) fn new(meta: &Meta, earlier: Option<Earlier>) -> Self {
        let arguments = meta.command.iter().skip(1).filter(|word| !word.starts_with(b"-"));
        let arguments = arguments.map(|word| absolute(&meta.folder, word));
        // A word that names the root, or the folder itself, would know everything.
        let arguments = arguments.filter(|path| path.len() > 1);
        Sources {
            arguments: arguments.collect(),
            listed: HashSet::new(),
            private: Private::new(std::iter::empty()),
            earlier,
        }
    }

    /// The command line of a program that the run has started names this path, or a folder above it.
    pub(super) fn named(&mut self, path: &Arc<[u8]>) {
        self.arguments.insert(Arc::clone(path));
    }

    /// A folder was listed.
    pub(super) fn listed(&mut self, folder: &Arc<[u8]>) {
        self.listed.insert(Arc::clone(folder));
    }

    /// The sources that know, at the first touch of this name, that it will be touched.
    pub(super) fn of_name(&self, path: &[u8]) -> KnownBy {
        let folder_end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let ends = path.iter().enumerate().filter(|&(at, &byte)| byte == b'/' && at > 0);
        let mut ends = ends.map(|(at, _)| at).chain([path.len()]);
        let is_below = ends.any(|end| self.arguments.contains(&path[..end]));
        let earlier = match &self.earlier {
            Some(earlier) => earlier.has_name(path),
            None => !self.private.has(path),
        };
        let known = |is_known, bit| if is_known { bit } else { 0 };
        known(is_below, ARGUMENTS)
            | known(self.listed.contains(&path[..folder_end]), WALK)
            | known(earlier, EARLIER)
    }

    /// As `by_name` says of the file, for a read at `start` of it.
    pub(super) fn of_read(&self, by_name: KnownBy, path: &[u8], start: u64) -> KnownBy {
        match &self.earlier {
            Some(earlier) if by_name & EARLIER != 0 && !earlier.has(path, start) => {
                by_name & !EARLIER
            }
            _ => by_name,
        }
    }
}

/// A word of the command line as a path, without `.` and `..`.
fn absolute(folder: &[u8], word: &[u8]) -> Arc<[u8]> {
    match word.starts_with(b"/") {
        true => without_dots(word).into(),
        false => without_dots(&[folder, b"/", word].concat()).into(),
    }
}

#[cfg(test)]
mod tests {
    use foretell_manager::learn::steps::{Acts, Part, Run, Step};

    use super::*;

    fn meta() -> Meta {
        let command = ["grep", "-r", "x", "../data/./a", "/b"].map(|word| word.as_bytes().into());
        Meta { command: command.to_vec(), folder: b"/home/me"[..].into(), began_s: 0 }
    }

    #[test]
    fn arguments_know_what_they_name_and_walks_what_was_listed() {
        let mut sources = Sources::new(&meta(), None);
        sources.listed(&b"/usr/lib"[..].into());
        let known = |path: &str| sources.of_name(path.as_bytes()) & !EARLIER;
        assert_eq!(known("/home/data/a"), ARGUMENTS);
        assert_eq!(known("/home/data/a/sub/file"), ARGUMENTS);
        assert_eq!(known("/home/data/ab"), 0);
        assert_eq!(known("/b/c"), ARGUMENTS);
        assert_eq!(known("/usr/lib/libc.so"), WALK);
        assert_eq!(known("/usr/lib/x/y"), 0);
        sources.named(&b"/usr/lib/x"[..].into());
        assert_eq!(sources.of_name(b"/usr/lib/x/y") & !EARLIER, ARGUMENTS);
    }

    #[test]
    fn an_earlier_run_knows_what_it_has_read() {
        let step = |path: &str, acts, end| Step {
            path: path.as_bytes().into(),
            acts,
            parts: vec![Part { start: 0, end }],
            at_ms: 0,
        };
        let mut profile = Profile::new("x".into());
        let steps =
            vec![step("/whole", Acts::READ | Acts::END, 8192), step("/part", Acts::READ, 8192)];
        profile.learn(Run { steps, is_cut: false }, |_, _| true, true);
        let sources = Sources::new(&meta(), Some(Earlier::new(&profile)));
        let known = |path: &str, start| {
            let path = path.as_bytes();
            sources.of_read(sources.of_name(path), path, start) == EARLIER
        };
        assert!(known("/whole", 1 << 20) && known("/part", 8191));
        assert!(!known("/part", 8192) && !known("/other", 0));
        let same = Sources::new(&meta(), None);
        assert_eq!(same.of_name(b"/any"), EARLIER);
        assert_eq!(same.of_name(b"/proc/self/maps"), 0);
    }
}
