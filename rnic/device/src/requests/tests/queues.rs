//! Queues and queue pairs whose numbers and sizes a client invents: each is refused by its name, and
//! nothing is left of the attempt.

use rnic_ipc::control::QpState;
use rnic_ipc::id::SrqId;

use super::*;

#[test]
fn names_that_a_client_invents_are_unknown() {
    for bench in both() {
        let (session, other) = (bench.client(), bench.client());
        let (pd, cq) = (pd(&session), cq(&session));
        let theirs = qp(&other, super::pd(&other), super::cq(&other));
        for number in [0, theirs.0, 99, u32::MAX] {
            let (srq, invented) = (SrqId(number), QpNum(number));
            let attributes = QpAttributes {
                srq: Some(srq),
                ..attributes(pd, cq)
            };
            for request in [
                Request::ArmSrq { srq, limit: 1 },
                Request::DestroySrq { srq },
                Request::CreateQp(attributes),
                Request::CreateSrq {
                    pd: PdId(pd.0 + 7),
                    depth: 1,
                    max_sge: 1,
                },
                Request::ModifyQp {
                    qp: invented,
                    state: QpState::Error,
                },
            ] {
                let reply = ask(&session, request.clone());
                assert_eq!(refused(reply), RefusalCode::UnknownObject, "{request:?}");
            }
        }
        let state = ask(&other, Request::QueryQp { qp: theirs });
        assert_eq!(state, Ok(Response::QpState(QpState::Idle)));
    }
}

#[test]
fn sizes_beyond_the_limits_are_refused_and_cost_nothing() {
    for bench in both() {
        let session = bench.client();
        let (pd, cq) = (pd(&session), cq(&session));
        let srq = |depth, max_sge| Request::CreateSrq { pd, depth, max_sge };
        let inline = |max_inline| {
            Request::CreateQp(QpAttributes {
                max_inline,
                ..attributes(pd, cq)
            })
        };
        for (request, code) in [
            (srq(0, 1), RefusalCode::Malformed),
            (srq(1, 0), RefusalCode::Malformed),
            (srq(u32::MAX, u32::MAX), RefusalCode::Limit),
            (inline(513), RefusalCode::Limit),
            (inline(u32::MAX), RefusalCode::Limit),
        ] {
            let reply = ask(&session, request.clone());
            assert_eq!(refused(reply), code, "{request:?}");
        }
        ask(&session, Request::DeallocPd { pd }).unwrap();
    }
}

#[test]
fn a_change_of_state_that_cannot_be_says_what_it_found() {
    for bench in both() {
        let session = bench.client();
        let qp = qp(&session, pd(&session), cq(&session));
        for state in [QpState::Idle, QpState::Rts, QpState::Closing] {
            let refusal = ask(&session, Request::ModifyQp { qp, state }).unwrap_err();
            assert_eq!(refusal.code, RefusalCode::WrongState);
            assert!(refusal.message.contains("Idle"), "{refusal}");
        }
        let modify = |state| ask(&session, Request::ModifyQp { qp, state });
        modify(QpState::Error).unwrap();
        modify(QpState::Idle).unwrap();
    }
}
