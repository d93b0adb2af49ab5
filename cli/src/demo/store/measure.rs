//! Measures two tasks, each in several ways, on a new mount for each way. The bytes read are compared with the store's folder,
//! and `grep`'s output with its output on that folder.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use foretell_protocol::{Ioctl, IoctlHint, Segment};
use foretell_testbed::store::StoreOptions;
use rustix::fs::{Advice, fadvise};

use super::data::{Data, NEEDLE, NOTES, OBJECT, RANGE_BYTES};
use super::results::{Case, Kind, Sample, Way};
use super::served::Served;
use crate::demo::cancel::{Cancel, Outcome};

/// The paths and options of a measurement, and the switch that cancels it.
pub(super) struct Bench<'a> {
    pub(super) data: &'a Data,
    pub(super) mountpoint: &'a Path,
    pub(super) options: StoreOptions,
    pub(super) grep: &'a Path,
    pub(super) cancel: &'a Cancel,
}

/// How hints are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hints {
    /// Not at all.
    None,
    /// A call of `posix_fadvise(WILLNEED)` for each range.
    Advice,
    /// One ioctl with all ranges.
    Ioctl,
    /// `foretell run`.
    Run,
}

/// One measurement of a round: the index of each measured way in the case, with its sample; and the store's mean lateness in
/// seconds.
type Measured = Result<(Vec<(usize, Sample)>, f64), String>;

/// The ways of reading the ranges, in the order of their indices.
pub(super) fn ranges_case(what: String) -> Case {
    let ways = vec![
        Way::new("without hints", Kind::Plain),
        Way::new("posix_fadvise(WILLNEED)", Kind::Hinted),
        Way::new("a list by ioctl", Kind::Hinted),
        Way::new("again, from foretell's memory", Kind::Again),
        Way::new("again, from the page cache", Kind::Again),
    ];
    Case { what, ways }
}

/// The ways of searching, in the order of their indices.
pub(super) fn search_case(what: String) -> Case {
    let ways = vec![
        Way::new("without hints", Kind::Plain),
        Way::new("under foretell run", Kind::Hinted),
        Way::new("again, from the page cache", Kind::Again),
    ];
    Case { what, ways }
}

impl Bench<'_> {
    fn serve(&self) -> Result<Served<'_>, String> {
        self.cancel.check()?;
        Served::begin(&self.data.folder, self.mountpoint, &self.options)
    }

    /// Reads the ranges one after another; without hints, reads them a second time too. Also returns how late the store was.
    pub(super) fn ranges(&self, hints: Hints) -> Measured {
        let mut served = self.serve()?;
        let file = served.within(|| File::open(self.mountpoint.join(OBJECT)))?;
        let truth = File::open(self.data.folder.join(OBJECT)).map_err(|error| error.to_string())?;
        let ways: &[usize] = match hints {
            Hints::None => &[0, 4, 3],
            Hints::Advice => &[1],
            Hints::Ioctl | Hints::Run => &[2],
        };
        let mut samples = Vec::new();
        let mut bytes = vec![0; self.data.offsets.len() * RANGE_BYTES];
        for &way in ways {
            bytes.fill(0); // Bytes of an earlier read must not pass the comparison.
            if way == 3 {
                // Drops the kernel's page cache of the file and keeps foretell's cache.
                fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| error.to_string())?;
            }
            let watch = self.cancel.watch(served.process());
            let timed = served.time(|| self.read_ranges(&file, hints, &mut bytes));
            drop(watch);
            self.cancel.check()?;
            let (mut sample, ()) = timed?;
            sample.identical = self.is_right(&truth, &bytes)?;
            samples.push((way, sample));
        }
        drop(file);
        Ok((samples, served.end()?))
    }

    fn read_ranges(&self, file: &File, hints: Hints, bytes: &mut [u8]) -> io::Result<()> {
        match hints {
            Hints::Advice => {
                let length = std::num::NonZeroU64::new(RANGE_BYTES as u64);
                for &offset in &self.data.offsets {
                    fadvise(file, offset, length, Advice::WillNeed)?;
                }
            }
            Hints::Ioctl => hint(file, &self.data.offsets)?,
            Hints::None | Hints::Run => {}
        }
        for (&offset, piece) in self.data.offsets.iter().zip(bytes.chunks_mut(RANGE_BYTES)) {
            file.read_exact_at(piece, offset)?;
        }
        Ok(())
    }

    fn is_right(&self, truth: &File, bytes: &[u8]) -> Result<bool, String> {
        let mut right = vec![0; RANGE_BYTES];
        for (&offset, piece) in self.data.offsets.iter().zip(bytes.chunks(RANGE_BYTES)) {
            truth.read_exact_at(&mut right, offset).map_err(|error| error.to_string())?;
            if piece != right {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Searches all small objects; without hints, searches a second time too.
    pub(super) fn search(&self, hints: Hints) -> Measured {
        let right =
            self.searched(&self.data.folder, Hints::None).map_err(|error| error.to_string())?;
        let mut served = self.serve()?;
        let ways: &[usize] = if hints == Hints::None { &[0, 2] } else { &[1] };
        let mut samples = Vec::new();
        for &way in ways {
            let timed = served.time(|| self.searched(self.mountpoint, hints));
            self.cancel.check()?;
            let (mut sample, outcome) = timed?;
            sample.identical = outcome == right;
            samples.push((way, sample));
        }
        Ok((samples, served.end()?))
    }

    /// Does what a shell does with `grep -n -F NEEDLE notes/*`: lists the folder and runs the program.
    fn searched(&self, folder: &Path, hints: Hints) -> io::Result<Outcome> {
        let listed = std::fs::read_dir(folder.join(NOTES))?;
        let names = listed.map(|entry| Ok(Path::new(NOTES).join(entry?.file_name())));
        let mut names = names.collect::<io::Result<Vec<PathBuf>>>()?;
        names.sort();
        let mut command = match hints {
            Hints::None => Command::new(self.grep),
            _ => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["run", "--no-learn", "--quiet", "--"]).arg(self.grep);
                command
            }
        };
        command.args(["-n", "-F", NEEDLE]).args(names).current_dir(folder);
        self.cancel.run(command)
    }
}

/// Gives all ranges as hints, by one ioctl on the file's descriptor.
fn hint(file: &File, offsets: &[u64]) -> io::Result<()> {
    let segment = |&offset_bytes: &u64| Segment { offset_bytes, length_bytes: RANGE_BYTES as u64 };
    let segments = offsets.iter().map(segment).collect();
    let hint = Ioctl::Hint(IoctlHint { path: Vec::new(), segments, any_order: false });
    let (command, bytes) = hint.encode().ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the command's number has the length of `bytes`.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), command.into(), bytes.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
