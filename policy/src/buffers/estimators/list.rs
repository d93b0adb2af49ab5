//! The estimators of the list, as the arbiter sees them: asked in turn, and told of events.
//!
//! The list is known when the policy is compiled, so that each call is direct and an event without a body costs nothing.
//!
//! Cost: one call of each estimator for whatever is asked.

use super::*; // The modules that the list names.

/// Prefetched blocks may hold buffers that would bring a queue more hits. A prefetched block that is worth less than such a
/// hit, divided by this, is evicted before blocks of the queue: its stream has presumably stopped reading. The blocks of a
/// stream that still reads are worth more than that.
/// Unit: ratio. Reason: judgement.
const BEYOND_REACH_DIVISOR: f64 = 16.0;

/// The estimator of the list with the least valuable block. Values are normalised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least {
    pub(crate) of: Listed,
    pub(crate) value: f64,
    /// A stream's block that is worth less than this leaves first.
    pub(crate) bound: f64,
}

macro_rules! define {
    ($($(#[$cfg:meta])* $name:ident: $kind:ty = $new:expr;)*) => {
        /// See the [module](self).
        #[derive(Debug)]
        pub(crate) struct Estimators {
            $($(#[$cfg])* pub(crate) $name: $kind,)*
        }

        /// An estimator of the list, by its field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types)]
        pub(crate) enum Listed {
            $($(#[$cfg])* $name,)*
        }

        impl Estimators {
            pub(crate) fn new(setting: &Setting) -> Self {
                Estimators { $($(#[$cfg])* $name: $new(setting),)* }
            }

            /// The estimator with the least valuable block. `reach` is the number of buffers without prefetched blocks.
            ///
            /// The bound is higher than the value where prefetched blocks put hits of the estimator out of reach.
            #[inline]
            pub(crate) fn least(&mut self, scene: &Scene<'_>, reach: usize) -> Option<Least> {
                let mut least: Option<(Listed, f64)> = None;
                $($(#[$cfg])* {
                    let estimator = &mut self.$name;
                    estimator.set_reach(reach);
                    if let Some(value) = estimator.declare(scene) {
                        let value = value * scene.rates.count(estimator.share());
                        if least.is_none_or(|(_, least)| value < least) {
                            least = Some((Listed::$name, value));
                        }
                    }
                })*
                let (of, value) = least?;
                let beyond = match of {
                    $($(#[$cfg])* Listed::$name => {
                        let share = scene.rates.count(self.$name.share());
                        self.$name.value_beyond_reach(scene) * share
                    })*
                };
                Some(Least { of, value, bound: value.max(beyond / BEYOND_REACH_DIVISOR) })
            }

            /// The first estimator that tracks a block, whatever it is worth.
            #[inline]
            pub(crate) fn first(&mut self, scene: &Scene<'_>) -> Option<Listed> {
                $($(#[$cfg])* if self.$name.declare(scene).is_some() {
                    return Some(Listed::$name);
                })*
                None
            }

            /// Has the estimator `of` pick its least valuable block.
            #[inline]
            pub(crate) fn pick(&mut self, of: Listed, scene: &mut Scene<'_>) -> Option<SlotId> {
                match of {
                    $($(#[$cfg])* Listed::$name => self.$name.pick(scene),)*
                }
            }

            /// Offers a block to all but `picker`, until one values it above `floor`, normalised. The picker is left out:
            /// by rounding it could value the block above its own declaration.
            #[inline]
            pub(crate) fn offer(
                &mut self,
                scene: &mut Scene<'_>,
                slot: SlotId,
                picker: Option<Listed>,
                floor: f64,
            ) -> bool {
                $($(#[$cfg])* {
                    let estimator = &mut self.$name;
                    if picker != Some(Listed::$name)
                        && (estimator.takes_over() || estimator.tracks(scene.blocks, slot))
                        && estimator.offer(scene, slot, scene.rates.own(estimator.share(), floor))
                    {
                        return true;
                    }
                })*
                false
            }

            /// See [`Estimator::forget`].
            #[inline]
            pub(crate) fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
                $($(#[$cfg])* self.$name.forget(scene, slot);)*
            }

            /// See [`Estimator::moved`].
            pub(crate) fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex) {
                $($(#[$cfg])* self.$name.moved(scene, slot, before);)*
            }

            /// The field of the first estimator of the list that tracks the block.
            pub(crate) fn kept_by(&self, blocks: &BlockTable, slot: SlotId) -> Option<&'static str> {
                $($(#[$cfg])* if self.$name.tracks(blocks, slot) {
                    return Some(stringify!($name));
                })*
                None
            }

            /// See [`Estimator::memory_bytes`].
            pub(crate) fn memory_bytes(&self) -> usize {
                let mut bytes = 0;
                $($(#[$cfg])* { bytes += self.$name.memory_bytes(); })*
                bytes
            }

            /// See [`Estimator::read`].
            #[inline(always)] // Every hit passes here.
            pub(crate) fn read(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
                $($(#[$cfg])* self.$name.read(scene, slot);)*
            }

            /// See [`Estimator::missed`].
            #[inline]
            pub(crate) fn missed(&mut self, block: Block) {
                $($(#[$cfg])* self.$name.missed(block);)*
            }

            /// See [`Estimator::read_hinted`].
            #[inline]
            pub(crate) fn read_hinted(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
                $($(#[$cfg])* self.$name.read_hinted(scene, slot);)*
            }

            /// See [`Estimator::arrived`].
            #[inline]
            pub(crate) fn arrived(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
                $($(#[$cfg])* self.$name.arrived(scene, slot);)*
            }
        }
    };
}

listed_estimators!(define);
