//! The records that programs write to their rings, taken in.
//!
//! A turn takes in a bounded number of blocks of each program, and leaves the rest to the next turn, which comes at once. The
//! last records of a program that has ended are taken in before it is let go.

use foretell_policy::ReaderId;
use foretell_protocol::Event;

use super::Session;
use super::walking::Known;
use crate::reads::Reads;

/// When a turn has taken in this many blocks that one program has read, it goes on to the next program, since other programs
/// and a stop wait meanwhile. (A single call of a program can read four times as many.)
pub(super) const TURN_BLOCKS_MAX: u64 = 65_536;

impl Session {
    /// Drains the rings of all programs, and lets go of programs that have ended.
    pub(super) fn take_records(&mut self) {
        let now = self.now();
        if self.fault.ignores_rings() {
            return;
        }
        let (policy, ended_programs) = (&mut self.policy, &mut self.ended_programs);
        let (walking, streams) = (&mut self.walking, &mut self.streams);
        let (mut waited_ns, waits) = (Vec::new(), &mut self.waits);
        let (files, arguments) = (self.files.as_ref(), self.arguments.as_mut());
        let accesses = (&mut self.accesses, &self.mounts);
        let mut known = Known { files, arguments, accesses };
        let mut touches = Vec::new();
        let (mut behind, mut ended_processes, mut advices) = (false, Vec::new(), Vec::new());
        self.programs.retain_mut(|program| {
            let of = program.reader();
            let mut reads = Reads::new(policy, now, of);
            let ended = program.has_ended();
            program.drain_while(ended, |event| {
                match event {
                    Event::Call(record) => {
                        known.accesses.0.call(&record);
                        waits.take(&record);
                        reads.take(record);
                    }
                    Event::Touch(touch) => touches.push(touch),
                    Event::Advice(advice) => advices.push((of, advice)),
                }
                reads.told_blocks() < TURN_BLOCKS_MAX
            });
            reads.tell();
            let told_blocks = reads.told_blocks();
            walking.take((of, &mut program.walker), &mut known, &touches, now);
            touches.clear();
            known.accesses.0.take_calls(of, (known.files, known.accesses.1));
            let is_behind = told_blocks >= TURN_BLOCKS_MAX;
            behind |= is_behind;
            if ended && !is_behind {
                let counters = program.counters();
                ended_programs.add(&counters);
                waited_ns.push(counters.stall_ns());
                if let Some(stream) = walking.end(program) {
                    *streams -= 1;
                    policy.close(now, stream);
                }
                ended_processes.extend(program.is_gone().then(|| program.reader()));
            }
            !ended || is_behind
        });
        self.is_behind = behind;
        if !waited_ns.is_empty() {
            let used = self.used_ahead();
            waited_ns.into_iter().for_each(|waited_ns| self.following.ended(waited_ns, used));
        }
        advices.into_iter().for_each(|(process, advice)| self.take_advice(process, advice));
        for process in ended_processes {
            self.process_ended(process);
        }
    }

    /// Lets go of what is known of a process that has ended.
    pub(super) fn process_ended(&mut self, process: ReaderId) {
        self.end_arguments(process);
        self.end_advice(process);
        self.end_observed(process);
        self.end_ruled(process);
        self.accesses.ends(process);
    }
}
