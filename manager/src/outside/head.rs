//! What the beginning of an executed file tells: whether the interposing library can work in it at all.

/// Bytes that are read of a file. The table of segments, and the note of Go's linker, lie within the first page.
pub(super) const HEAD_BYTES: usize = 4096;

/// Segment types of ELF.
const PT_INTERP: u32 = 3;

/// A note of Go's linker: type 4 (the build's identity) and its name.
const GO_NOTE: &[u8] = b"\x04\0\0\0Go\0\0";

/// What can be said of a program by the beginning of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// It loads no libraries, or makes its system calls without the C library.
    Outside,
    /// It loads libraries; whether foretell's is among them shows in its mappings.
    Dynamic,
}

impl Head {
    /// Reads `head`, the first bytes of a file that the kernel has executed.
    pub(super) fn of(head: &[u8]) -> Self {
        let is_go = head.windows(GO_NOTE.len()).any(|window| window == GO_NOTE);
        match has_loader(head) {
            Some(true) if !is_go => Head::Dynamic,
            // Not an ELF file, or one with its table elsewhere: the mappings decide.
            None if !is_go => Head::Dynamic,
            _ => Head::Outside,
        }
    }
}

/// Whether an ELF file names a dynamic linker; `None` if that is not said in `head`.
fn has_loader(head: &[u8]) -> Option<bool> {
    let identity = head.strip_prefix(b"\x7fELF")?;
    let (is_64, is_little) = (*identity.first()? == 2, *identity.get(1)? == 1);
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let mut part: Vec<u8> = head.get(at..at.checked_add(bytes)?)?.to_vec();
        if !is_little {
            part.reverse();
        }
        usize::try_from(part.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))).ok()
    };
    let (table, size, count) = match is_64 {
        true => (number(32, 8)?, number(54, 2)?, number(56, 2)?),
        false => (number(28, 4)?, number(42, 2)?, number(44, 2)?),
    };
    for index in 0..count {
        let at = table.checked_add(index.checked_mul(size)?)?;
        if number(at, 4)? == PT_INTERP as usize {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a file with segments of these types.
    fn file(types: &[u32], is_64: bool) -> Vec<u8> {
        let mut head = vec![0; 256];
        head[..4].copy_from_slice(b"\x7fELF");
        (head[4], head[5]) = (if is_64 { 2 } else { 1 }, 1);
        let (table, size, at_table, at_size) =
            if is_64 { (64u8, 56u8, 32, 54) } else { (52, 32, 28, 42) };
        head[at_table] = table;
        head[at_size] = size;
        head[at_size + 2] = types.len() as u8;
        for (index, kind) in types.iter().enumerate() {
            let at = usize::from(table) + index * usize::from(size);
            head.resize(head.len().max(at + 4), 0);
            head[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        }
        head
    }

    #[test]
    fn a_program_without_a_dynamic_linker_is_outside() {
        for is_64 in [true, false] {
            assert_eq!(Head::of(&file(&[6, 3, 1], is_64)), Head::Dynamic);
            assert_eq!(Head::of(&file(&[1, 1, 2], is_64)), Head::Outside);
        }
        let go = [file(&[3], true), b"\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0id".to_vec()].concat();
        assert_eq!(Head::of(&go), Head::Outside);
    }

    #[test]
    fn what_is_cut_or_damaged_is_left_to_its_mappings() {
        let whole = file(&[1, 1, 3], true);
        for length in 0..whole.len() {
            let _ = Head::of(&whole[..length]);
        }
        assert_eq!(Head::of(&whole[..100]), Head::Dynamic);
        assert_eq!(Head::of(b""), Head::Dynamic);
        let mut far = whole;
        far[32..40].fill(0xff);
        assert_eq!(Head::of(&far), Head::Dynamic);
    }

    #[test]
    fn this_test_is_dynamic() {
        let own = std::fs::read("/proc/self/exe").expect("it is there");
        assert_eq!(Head::of(&own[..HEAD_BYTES]), Head::Dynamic);
    }
}
