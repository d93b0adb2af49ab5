//! What is left of a region for a process that has gone back to a byte of it.

use foretell_rules::{Access, Region};

/// What of a region lies at a byte or behind it. A strided part that begins before it is past.
pub(super) fn rest(region: &Region, from: u64) -> Option<Region> {
    let before = from.saturating_sub(region.offset_bytes);
    if before == 0 {
        return Some(*region);
    }
    if let Access::Strided { length_bytes, stride_bytes, count } = region.access {
        let past = before.div_ceil(stride_bytes);
        let offset_bytes = region.offset_bytes.checked_add(past.checked_mul(stride_bytes)?)?;
        let count = match count {
            Some(count) => Some(count.checked_sub(past).filter(|&count| count > 0)?),
            None => None,
        };
        let access = Access::Strided { length_bytes, stride_bytes, count };
        return Some(Region { offset_bytes, access, ..*region });
    }
    let length_bytes = match region.length_bytes {
        Some(length) => Some(length.checked_sub(before).filter(|&length| length > 0)?),
        None => None,
    };
    Some(Region { offset_bytes: from, length_bytes, ..*region })
}
