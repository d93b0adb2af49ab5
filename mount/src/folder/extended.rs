//! Extended attributes of files: those that programs set (`user.*`) are passed on to the folder.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::XattrFlags;
use rustix::io::{Errno, Result};

use super::nodes::path_of;
use super::tree::Tree;
use crate::service::{ATTRIBUTE_MAX_BYTES, ATTRIBUTE_PREFIX};

/// The prefix of attributes that are passed on. Those for security and access control lists are not.
const ATTRIBUTES: &[u8] = b"user.";

impl Tree {
    /// A descriptor for a file's attribute `name`. Fails if that is not an attribute that programs may set on files.
    fn with_attribute(&self, number: u64, name: &OsStr) -> Result<Arc<OwnedFd>> {
        let bytes = name.as_bytes();
        if !bytes.starts_with(ATTRIBUTES) || bytes.starts_with(ATTRIBUTE_PREFIX.as_bytes()) {
            return Err(Errno::OPNOTSUPP);
        }
        let node = self.nodes.get(number)?;
        if node.is_link() {
            return Err(Errno::OPNOTSUPP);
        }
        self.nodes.descriptor(&node)
    }

    pub(crate) fn attribute(&self, number: u64, name: &OsStr) -> Result<Vec<u8>> {
        let descriptor = self.with_attribute(number, name)?;
        let mut value = vec![0; ATTRIBUTE_MAX_BYTES];
        let length = rustix::fs::getxattr(path_of(&descriptor), name, &mut value[..])?;
        value.truncate(length);
        Ok(value)
    }

    pub(crate) fn set_attribute(
        &self,
        number: u64,
        (name, value): (&OsStr, &[u8]),
        flags: i32,
    ) -> Result<()> {
        let descriptor = self.with_attribute(number, name)?;
        let flags = XattrFlags::from_bits_retain(flags as u32);
        rustix::fs::setxattr(path_of(&descriptor), name, value, flags)
    }

    pub(crate) fn remove_attribute(&self, number: u64, name: &OsStr) -> Result<()> {
        let descriptor = self.with_attribute(number, name)?;
        rustix::fs::removexattr(path_of(&descriptor), name)
    }

    pub(crate) fn list_attributes(&self, number: u64) -> Result<Vec<u8>> {
        let node = self.nodes.get(number)?;
        if node.is_link() {
            return Ok(Vec::new());
        }
        let mut names = vec![0; ATTRIBUTE_MAX_BYTES];
        let descriptor = self.nodes.descriptor(&node)?;
        let length = match rustix::fs::listxattr(path_of(&descriptor), &mut names[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            length => length?,
        };
        let of_programs = names[..length]
            .split_inclusive(|&byte| byte == 0)
            .filter(|name| name.starts_with(ATTRIBUTES));
        Ok(of_programs.flatten().copied().collect())
    }
}
