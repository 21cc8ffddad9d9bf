//! A primary with two replicas under three Sentinels. A failover may forget what was not replicated yet, and a split brain
//! lets two hold: both are documented, so what happens around them is told apart.

use clinch_testkit::deployment::SentinelDeployment;

use super::{Cost, Ground, leases, pause};

const FAULTS: [&str; 6] =
    ["failover", "primary killed", "primary stopped", "split brain", "replica killed", "sentinel stopped"];

pub(super) struct Sentinel {
    deployment: SentinelDeployment,
    /// Which was the primary when it was looked at last.
    primary: usize,
}

impl Sentinel {
    pub(super) fn start() -> Self {
        let deployment = SentinelDeployment::start();
        let primary = deployment.primary();
        Self { deployment, primary }
    }
}

impl Ground for Sentinel {
    fn url(&self, _: usize) -> String {
        self.deployment.url()
    }

    fn faults(&self) -> &'static [&'static str] {
        &FAULTS
    }

    fn strike(&mut self, fault: &str) -> Cost {
        let deployment = &self.deployment;
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
                let replica = (primary + 1) % deployment.servers().len();
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
        let harmless = matches!(fault, "replica killed" | "sentinel stopped");
        self.primary = deployment.primary();
        if harmless && self.primary == primary { Cost::Nothing } else { Cost::Exclusion }
    }

    fn by_itself(&mut self) -> Cost {
        let before = std::mem::replace(&mut self.primary, self.deployment.primary());
        if before == self.primary { Cost::Nothing } else { Cost::Exclusion }
    }

    fn left(&self) -> Vec<String> {
        leases(&self.deployment.servers()[self.deployment.primary()])
    }
}
