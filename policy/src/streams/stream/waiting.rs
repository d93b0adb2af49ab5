//! Hints whose files are not known yet, or whose turn to be placed has not come.
//!
//! Programs disclose whole directories at once, so there may be millions of these. A hint to read a file once from start to end
//! takes 32 bytes. Any other plan lies in a separate allocation.

use crate::blocks::DeviceIndex;
use crate::hint::{Extent, FileId, Hint, NameId, Plan, Target};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The name's id until the file is known, then the file's.
    id: u64,
    size_bytes: u64,
    /// `None`: [`Plan::WHOLE`].
    planned: Option<Box<Planned>>,
    pub(crate) device: DeviceIndex,
    stage: Stage,
}

/// How far the lookup of a hint's name has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Pending(NameId),
    InFlight,
    /// The lookup is slow: later hints may be placed first.
    Overdue,
    Known {
        file: FileId,
        size_bytes: u64,
    },
    /// The hint is dropped.
    Void,
}

impl Lookup {
    fn of(target: Target) -> Self {
        match target {
            Target::Name(name) => Lookup::Pending(name),
            Target::File { file, size_bytes } => Lookup::Known { file, size_bytes },
        }
    }

    pub(crate) fn is_known(self) -> bool {
        matches!(self, Lookup::Known { .. })
    }
}

/// A [`Lookup`] without its result.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Pending,
    InFlight,
    Overdue,
    Known,
    Void,
}

#[derive(Debug)]
struct Planned {
    plan: Plan,
    /// For a plan that is placed in parts: the passes after this one.
    again: Option<Again>,
}

#[derive(Debug)]
struct Again {
    extent: Extent,
    passes: u32,
    /// Whether the current pass got positions. A pass that got none is the last.
    has_placed: bool,
}

impl Waiting {
    pub(crate) fn new(hint: Hint, device: DeviceIndex) -> Self {
        let Hint { target, extent, order, repeats, .. } = hint;
        let (lookup, plan) = (Lookup::of(target), Plan { extent, order, repeats });
        let is_whole = plan == Plan::WHOLE;
        let planned = (!is_whole).then(|| Box::new(Planned { plan, again: None }));
        let mut waiting = Waiting { id: 0, size_bytes: 0, planned, device, stage: Stage::Void };
        waiting.set_lookup(lookup);
        waiting
    }

    pub(crate) fn lookup(&self) -> Lookup {
        match self.stage {
            Stage::Pending => Lookup::Pending(NameId(self.id)),
            Stage::InFlight => Lookup::InFlight,
            Stage::Overdue => Lookup::Overdue,
            Stage::Known => Lookup::Known { file: FileId(self.id), size_bytes: self.size_bytes },
            Stage::Void => Lookup::Void,
        }
    }

    pub(crate) fn set_lookup(&mut self, lookup: Lookup) {
        (self.stage, self.id, self.size_bytes) = match lookup {
            Lookup::Pending(NameId(name)) => (Stage::Pending, name, 0),
            Lookup::InFlight => (Stage::InFlight, 0, 0),
            Lookup::Overdue => (Stage::Overdue, 0, 0),
            Lookup::Known { file: FileId(file), size_bytes } => (Stage::Known, file, size_bytes),
            Lookup::Void => (Stage::Void, 0, 0),
        };
    }

    /// What will be read, or the rest of it.
    pub(crate) fn plan(&self) -> &Plan {
        self.planned.as_ref().map_or(&Plan::WHOLE, |planned| &planned.plan)
    }

    /// Bytes that it takes outside itself, with its segments.
    pub(crate) fn bytes_apart(&self) -> usize {
        let planned = self.planned.as_ref();
        planned.map_or(0, |planned| size_of::<Planned>() + planned.plan.extent.memory_bytes())
    }

    /// From now on passes are placed one at a time.
    pub(crate) fn goes_pass_by_pass(&mut self) {
        let Some(Planned { plan, again }) = self.planned.as_deref_mut() else { return };
        let passes = std::mem::replace(&mut plan.repeats, 1).saturating_sub(1);
        *again = Some(Again { extent: plan.extent.clone(), passes, has_placed: false });
    }

    /// A part of the current pass got positions.
    pub(crate) fn has_placed(&mut self) {
        if let Some(Planned { again: Some(again), .. }) = self.planned.as_deref_mut() {
            again.has_placed = true;
        }
    }

    /// Sets what is left of the current pass.
    pub(crate) fn goes_on_with(&mut self, rest: Extent) {
        let planned = self.planned.as_deref_mut().expect("it is placed part by part");
        planned.plan.extent = rest;
    }

    /// A pass was placed. Returns whether another one follows.
    pub(crate) fn begins_next_pass(&mut self) -> bool {
        let Some(Planned { plan, again: Some(again) }) = self.planned.as_deref_mut() else {
            return false;
        };
        if again.passes == 0 || !again.has_placed {
            return false;
        }
        (again.passes, again.has_placed) = (again.passes - 1, false);
        plan.extent = again.extent.clone();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{DeviceId, Order, Segment};

    const NAME: Target = Target::Name(NameId(u64::MAX));

    #[test]
    fn most_are_small() {
        let (whole, device) = (Hint::whole_file(NAME, DeviceId(7)), DeviceIndex(u16::MAX));
        assert_eq!(size_of::<Waiting>(), 32);
        assert_eq!(Waiting::new(whole.clone(), device).bytes_apart(), 0);
        let others = [
            Hint { repeats: 2, ..whole.clone() },
            Hint { order: Order::Any, ..whole.clone() },
            Hint::segments(NAME, DeviceId(7), &[Segment { offset_bytes: 0, length_bytes: 1 }]),
        ];
        for hint in others {
            let waiting = Waiting::new(hint.clone(), device);
            let Hint { extent, order, repeats, .. } = hint;
            assert_eq!(*waiting.plan(), Plan { extent, order, repeats });
            assert!(waiting.bytes_apart() > 0);
        }
    }

    #[test]
    fn what_is_known_of_it_is_what_was_said_last() {
        let mut waiting = Waiting::new(Hint::whole_file(NAME, DeviceId(0)), DeviceIndex(3));
        assert_eq!(waiting.lookup(), Lookup::Pending(NameId(u64::MAX)));
        let known = Lookup::Known { file: FileId(5), size_bytes: u64::MAX };
        for lookup in [Lookup::InFlight, Lookup::Overdue, known, Lookup::Void, known] {
            waiting.set_lookup(lookup);
            assert_eq!(waiting.lookup(), lookup);
        }
        assert_eq!((waiting.plan(), waiting.device), (&Plan::WHOLE, DeviceIndex(3)));
    }

    #[test]
    fn passes_end_with_the_last_or_with_one_that_places_nothing() {
        let first = Segment { offset_bytes: 0, length_bytes: 1 };
        let extent = Extent::Strided { first, stride_bytes: 8, count: 100 };
        let hint = Hint { extent: extent.clone(), ..Hint::whole_file(NAME, DeviceId(0)) };
        for (repeats, placed, passes) in [(3, 9, 2), (9, 2, 2), (1, 9, 0), (9, 0, 0)] {
            let mut waiting = Waiting::new(Hint { repeats, ..hint.clone() }, DeviceIndex(0));
            waiting.goes_pass_by_pass();
            let mut begun = 0;
            loop {
                if begun < placed {
                    waiting.has_placed();
                }
                waiting.goes_on_with(Extent::WholeFile);
                if !waiting.begins_next_pass() {
                    break;
                }
                assert_eq!(waiting.plan().extent, extent);
                begun += 1;
            }
            assert_eq!(begun, passes, "{repeats} passes");
        }
    }
}
