//! Random event sequences against the public interface of the policy; see `model`.

mod model;

use foretell_policy::Config;
use model::Driver;
use model::events::{Event, configs, events, events_of_slow_lookups};
use proptest::prelude::*;

/// Number of cases: that of the environment variable, if set.
fn cases(usual: u32) -> ProptestConfig {
    let given = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { usual };
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 20_000, ..given }
}

/// Plays the events, and checks what can be checked after each and at the end.
fn play(config: Config, events: &[Event], is_exact: bool) -> Driver {
    let mut driver = Driver::new(config, is_exact);
    events.iter().for_each(|event| driver.play(event));
    driver.rest();
    driver.finish();
    driver
}

proptest! {
    #![proptest_config(cases(1000))]

    /// For any sequence, every answer agrees with the driver's own record. At the end nothing is left and the counts add up.
    #[test]
    fn whatever_happens_the_invariants_hold(
        config in configs(), events in events(240), is_exact in any::<bool>()
    ) {
        play(config, &events, is_exact);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    /// Every answer agrees with the driver's own record also if lookups are slow, so that hints are placed after others that
    /// were disclosed later.
    #[test]
    fn however_slow_lookups_are_the_invariants_hold(
        config in configs(), events in events_of_slow_lookups(240), is_exact in any::<bool>()
    ) {
        play(config, &events, is_exact);
    }
}

proptest! {
    #![proptest_config(cases(100))]

    /// The same sequence of events gives the same answers.
    #[test]
    fn the_policy_is_deterministic(config in configs(), events in events(240)) {
        let run = || {
            let driver = play(config, &events, false);
            (driver.answers, driver.policy.counts(), driver.events)
        };
        prop_assert_eq!(run(), run());
    }
}
