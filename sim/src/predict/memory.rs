//! A cache of files, replaced by least recent use. Sizes are in bytes; a file is in it as a whole or not at all.
//!
//! Every operation takes constant time, or a constant time for each file that is evicted.

/// No file.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
    /// 0 if the file is not in memory.
    bytes: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Memory {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
    used_bytes: u64,
    capacity_bytes: u64,
}

impl Memory {
    /// An empty cache for the files 0 to `files`.
    pub(super) fn new(files: usize, capacity_bytes: u64) -> Self {
        let links = vec![Link { newer: NONE, older: NONE, bytes: 0 }; files];
        Memory { links, newest: NONE, oldest: NONE, used_bytes: 0, capacity_bytes }
    }

    pub(super) fn has(&self, file: u32) -> bool {
        self.links[file as usize].bytes > 0
    }

    /// Makes a file that is in memory the most recently used one.
    pub(super) fn touch(&mut self, file: u32) {
        let bytes = self.remove(file);
        self.push(file, bytes);
    }

    /// Makes a file that is in memory the one that goes first.
    pub(super) fn demote(&mut self, file: u32) {
        let bytes = self.remove(file);
        self.links[file as usize] = Link { newer: self.oldest, older: NONE, bytes };
        match self.oldest {
            NONE => self.newest = file,
            oldest => self.links[oldest as usize].older = file,
        }
        self.oldest = file;
        self.used_bytes += bytes;
    }

    /// Puts in a file of `bytes`, which is at least 1, as the most recently used one. What has to go for it is appended to
    /// `evicted`. A file that is larger than the cache is evicted itself.
    pub(super) fn insert(&mut self, file: u32, bytes: u64, evicted: &mut Vec<u32>) {
        if bytes > self.capacity_bytes {
            evicted.push(file);
            return;
        }
        while self.used_bytes + bytes > self.capacity_bytes {
            let oldest = self.oldest;
            self.remove(oldest);
            evicted.push(oldest);
        }
        self.push(file, bytes);
    }

    fn push(&mut self, file: u32, bytes: u64) {
        self.links[file as usize] = Link { newer: NONE, older: self.newest, bytes };
        match self.newest {
            NONE => self.oldest = file,
            newest => self.links[newest as usize].newer = file,
        }
        self.newest = file;
        self.used_bytes += bytes;
    }

    /// Takes out a file, and returns its bytes.
    fn remove(&mut self, file: u32) -> u64 {
        let Link { newer, older, bytes } = self.links[file as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        self.links[file as usize].bytes = 0;
        self.used_bytes -= bytes;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_files_go() {
        let mut memory = Memory::new(6, 100);
        let mut insert = |memory: &mut Memory, file, bytes| {
            let mut evicted = Vec::new();
            memory.insert(file, bytes, &mut evicted);
            evicted
        };
        assert_eq!(insert(&mut memory, 0, 40), []);
        assert_eq!(insert(&mut memory, 1, 30), []);
        assert_eq!(insert(&mut memory, 2, 30), []);
        memory.touch(0);
        assert_eq!(insert(&mut memory, 3, 50), [1, 2]);
        assert_eq!(insert(&mut memory, 4, 101), [4], "larger than the cache");
        assert!(memory.has(0) && memory.has(3) && !memory.has(1) && !memory.has(4));
        memory.touch(3);
        memory.touch(3);
        memory.demote(3);
        memory.demote(3);
        assert_eq!(insert(&mut memory, 5, 100), [3, 0]);
        memory.demote(5);
        assert_eq!(insert(&mut memory, 5 - 1, 1), [5]);
        assert_eq!(insert(&mut memory, 5, 99), []);
        assert_eq!(memory.used_bytes, 100);
    }
}
