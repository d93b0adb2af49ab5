//! Hints to the manager of `foretell run`, and to a foretell mount.
//!
//! Both take ranges of one file in the order of reading, and return how many of them were taken, from the first on. Fewer than
//! given means that the receiver is behind; the caller may send the rest later. Neither does anything in a forked child.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use foretell_protocol::layout::SOCKET_VARIABLE;
use foretell_protocol::{Client, ClientError, Extent, Hint, Ioctl, IoctlHint, Segment};
use pyo3::prelude::*;

use crate::errors::guarded;
use crate::process::OfProcess;
use crate::stream::segments;
use crate::wait::released;

/// The stream of a connection. Each connection has one.
const STREAM: u64 = 1;

/// Ranges of one message to the manager. With the longest path they fit into a packet.
const MANAGER_RANGES: usize = 2048;

/// Ranges of one ioctl. With the longest path they fit.
const MOUNT_RANGES: usize = 512;

fn ranges_of(py: Python<'_>, ranges: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<Segment>>> {
    let Some(ranges) = ranges else { return Ok(None) };
    let ours = segments(py, ranges)?.into_iter();
    let segment = |segment: foretell_cache::Segment| Segment {
        offset_bytes: segment.offset_bytes,
        length_bytes: segment.length_bytes,
    };
    Ok(Some(ours.map(segment).collect()))
}

/// Sends parts of `ranges` of up to `most` by `send`, until it says that the receiver is behind; returns how many were taken.
/// The whole file counts as one.
fn send_all(
    ranges: Option<Vec<Segment>>,
    most: usize,
    mut send: impl FnMut(&[Segment]) -> io::Result<()>,
) -> io::Result<usize> {
    let is_behind = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    let Some(ranges) = ranges else {
        return match send(&[]) {
            Ok(()) => Ok(1),
            Err(error) if is_behind(&error) => Ok(0),
            Err(error) => Err(error),
        };
    };
    let mut taken = 0;
    for part in ranges.chunks(most) {
        match send(part) {
            Ok(()) => taken += part.len(),
            Err(error) if is_behind(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

fn os_error(error: ClientError) -> io::Error {
    match error {
        ClientError::Send(error) | ClientError::Connect { source: error, .. } => error,
        ClientError::Hint(error) => io::Error::new(io::ErrorKind::InvalidInput, error),
        error => io::Error::new(io::ErrorKind::NotFound, error),
    }
}

/// A connection to the manager that `foretell run` names in the environment. Its hints are one stream, which ends with it.
#[pyclass(frozen, module = "foretell._foretell")]
pub(crate) struct Manager {
    client: OfProcess<Client>,
}

#[pymethods]
impl Manager {
    /// Connects; `None` if the program was not started by `foretell run`, or its manager has ended.
    #[staticmethod]
    fn connect(py: Python<'_>) -> PyResult<Option<Self>> {
        let Some(address) = std::env::var(SOCKET_VARIABLE).ok().filter(|name| !name.is_empty())
        else {
            return Ok(None);
        };
        guarded(py, || {
            let client = released(py, || Client::connect(&address)).ok();
            Ok(client.map(|client| Manager { client: OfProcess::new(client) }))
        })
    }

    /// Discloses ranges of the file at an absolute path, or all of it; waits up to `patience_s` seconds for each message.
    #[pyo3(signature = (path, ranges, ordered, patience_s))]
    fn hint(
        &self,
        py: Python<'_>,
        path: PathBuf,
        ranges: Option<&Bound<'_, PyAny>>,
        ordered: bool,
        patience_s: f64,
    ) -> PyResult<usize> {
        let ranges = ranges_of(py, ranges)?;
        let patience = Duration::try_from_secs_f64(patience_s).unwrap_or_default();
        guarded(py, || {
            Ok(released(py, || {
                let Some(client) = self.client.get() else {
                    return Err(io::ErrorKind::BrokenPipe.into());
                };
                send_all(ranges, MANAGER_RANGES, |part| {
                    let extent = match part {
                        [] => Extent::WholeFile,
                        part => Extent::Segments(part.to_vec()),
                    };
                    let (path, any_order) = (path.clone(), !ordered);
                    let hint = Hint { stream: STREAM, path, extent, repeat: 1, any_order };
                    client.hint_within(&hint, patience).map_err(os_error)
                })
            })?)
        })
    }

    /// Gives up hints that were not read. More may follow.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || {
            Ok(released(py, || match self.client.get() {
                Some(client) => client.cancel(STREAM).map_err(os_error),
                None => Ok(()),
            })?)
        })
    }
}

/// An open control file of a foretell mount. Its hints are one stream, which ends with it.
#[pyclass(frozen, module = "foretell._foretell")]
pub(crate) struct Mount {
    control: OfProcess<std::fs::File>,
}

fn ioctl(control: &std::fs::File, request: &Ioctl) -> io::Result<()> {
    let (command, mut bytes) = request.encode().ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel reads as many bytes as the command's number says, which are those of `bytes`.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), command as _, bytes.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[pymethods]
impl Mount {
    /// Opens the control file of the mount at `point`.
    #[new]
    fn new(py: Python<'_>, point: PathBuf) -> PyResult<Self> {
        guarded(py, || {
            let control = released(py, || std::fs::File::open(point.join(".foretell/control")))?;
            Ok(Mount { control: OfProcess::new(control) })
        })
    }

    /// Discloses ranges of the file at a path below the mount point, or all of it.
    #[pyo3(signature = (path, ranges, ordered))]
    fn hint(
        &self,
        py: Python<'_>,
        path: PathBuf,
        ranges: Option<&Bound<'_, PyAny>>,
        ordered: bool,
    ) -> PyResult<usize> {
        let ranges = ranges_of(py, ranges)?;
        guarded(py, || {
            Ok(released(py, || {
                let Some(control) = self.control.get() else {
                    return Err(io::ErrorKind::BrokenPipe.into());
                };
                let path = AsRef::<OsStr>::as_ref(&path).as_bytes();
                send_all(ranges, MOUNT_RANGES, |part| {
                    let hint = IoctlHint {
                        path: path.to_vec(),
                        segments: part.to_vec(),
                        any_order: !ordered,
                    };
                    ioctl(control, &Ioctl::Hint(hint))
                })
            })?)
        })
    }

    /// Gives up hints that were not read. More may follow.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || {
            Ok(released(py, || match self.control.get() {
                Some(control) => ioctl(control, &Ioctl::Cancel),
                None => Ok(()),
            })?)
        })
    }
}
