//! A primary with two replicas under three Sentinels. A failover may forget what was not replicated yet, and a split brain
//! lets two hold: both are documented, so what happens around them is told apart.

use clinch_testkit::deployment::SentinelDeployment;

use super::{Cost, Ground, leases, pause};

const FAULTS: [&str; 6] =
    ["failover", "primary killed", "primary stopped", "split brain", "replica killed", "sentinel stopped"];

pub(super) struct Sentinel(SentinelDeployment);

impl Sentinel {
    pub(super) fn start() -> Self {
        Self(SentinelDeployment::start())
    }

    /// Any but the primary.
    fn replica(&self) -> usize {
        (self.0.primary() + 1) % self.0.servers().len()
    }
}

impl Ground for Sentinel {
    fn url(&self, _: usize) -> String {
        self.0.url()
    }

    fn faults(&self) -> &'static [&'static str] {
        &FAULTS
    }

    fn strike(&mut self, fault: &str) -> Cost {
        let deployment = &self.0;
        let primary = deployment.primary();
        match fault {
            "failover" => drop(deployment.fail_over()),
            "primary killed" => {
                deployment.servers()[primary].kill();
                deployment.wait_for_other_than(primary);
                deployment.servers()[primary].restart();
            }
            "primary stopped" => {
                deployment.servers()[primary].stop();
                deployment.wait_for_other_than(primary);
                deployment.servers()[primary].cont();
            }
            "split brain" => {
                deployment.hide(primary);
                deployment.wait_for_other_than(primary);
                pause(100, 1500);
                deployment.show(primary);
            }
            "replica killed" => {
                let replica = self.replica();
                deployment.servers()[replica].kill();
                pause(100, 1000);
                deployment.servers()[replica].restart();
            }
            "sentinel stopped" => {
                let sentinel = super::one_of(deployment.sentinels());
                sentinel.stop();
                pause(100, 2000);
                sentinel.cont();
            }
            _ => panic!("`{fault}` is nothing that can be done here"),
        }
        deployment.wait_until_healthy();
        if matches!(fault, "replica killed" | "sentinel stopped") { Cost::Nothing } else { Cost::Exclusion }
    }

    fn left(&self) -> Vec<String> {
        leases(&self.0.servers()[self.0.primary()])
    }
}
