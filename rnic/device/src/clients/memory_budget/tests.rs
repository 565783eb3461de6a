use rnic_ipc::id::{CqId, PdId};

use super::*;

/// The limit of a queue's depth.
const DEPTH: u32 = 16;

fn budget(limit: u64) -> (MemoryBudget, tempfile::TempDir) {
    let top = tempfile::tempdir().unwrap();
    let group = top.path();
    std::fs::write(group.join("memory.max"), limit.to_string()).unwrap();
    std::fs::write(group.join("memory.current"), "0").unwrap();
    std::fs::write(group.join("memory.stat"), "").unwrap();
    let mount = format!("1 1 0:1 / {} rw - cgroup2 c rw\n", group.display());
    let budget = MemoryBudget {
        groups: Groups::of("0::/\n", &mount),
        ..MemoryBudget::default()
    };
    (budget, top)
}

fn queue_pair(sq_depth: u32) -> Request {
    Request::CreateQp(QpAttributes {
        pd: PdId(1),
        send_cq: CqId(1),
        recv_cq: CqId(1),
        sq_depth,
        rq_depth: 1,
        srq: None,
        max_sge: 1,
        max_inline: 0,
        signal_all: false,
        receive_wait: None,
    })
}

#[test]
fn what_takes_memory_is_refused_while_a_group_has_none_and_nothing_else() {
    let (budget, group) = budget(MARGIN);
    assert!(heap::keep_reserves());
    let check = |request: &Request, uncharged| budget.admit(request, DEPTH, || uncharged).map(drop);
    assert_eq!(check(&Request::AllocPd, 0), Ok(()));
    for request in [Request::AllocPd, queue_pair(16)] {
        let refusal = check(&request, 1).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Host);
        assert!(refusal.message.contains("no memory left"), "{refusal}");
    }
    assert_eq!(check(&Request::DeallocPd { pd: PdId(1) }, 1), Ok(()));
    assert_eq!(check(&Request::QueryDevice, 1), Ok(()));
    assert_eq!(check(&queue_pair(DEPTH + 1), 1), Ok(()));
    assert_eq!(budget.refused(), 2);
    std::fs::write(group.path().join("memory.max"), "max").unwrap();
    assert_eq!(check(&queue_pair(16), 1), Ok(()));
}

#[test]
fn only_who_takes_much_waits_for_others() {
    let (budget, _group) = budget(u64::MAX);
    assert!(heap::keep_reserves());
    assert!(
        budget
            .admit(&queue_pair(16), DEPTH, || 0)
            .unwrap()
            .is_some()
    );
    assert!(
        budget
            .admit(&Request::AllocPd, DEPTH, || 0)
            .unwrap()
            .is_none()
    );
}

#[test]
fn an_embedded_program_is_never_refused() {
    let (budget, _group) = budget(0);
    assert!(
        budget
            .admit(&queue_pair(16), DEPTH, || 0)
            .unwrap()
            .is_none()
    );
}
