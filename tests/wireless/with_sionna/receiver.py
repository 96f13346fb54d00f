"""Writes what Sionna's 5G NR receiver makes of SNRs: python receiver.py MCS.npz OUT.npz.

MCS.npz has `bits`, `code_rate` and `needed_snr_db` of each MCS, the numbers of those to be `tried` with blocks, and
`snr_db` for link adaptation.
"""

import sys

import numpy as np
import torch
from sionna.phy import config
from sionna.phy.channel import AWGN
from sionna.phy.fec.ldpc import LDPC5GDecoder, LDPC5GEncoder
from sionna.phy.mapping import BinarySource, Constellation, Demapper, Mapper
from sionna.sys import InnerLoopLinkAdaptation, OuterLoopLinkAdaptation, PHYAbstraction

BLOCK_BITS, NUM_BLOCKS, OFFSETS_DB = 2000, 100, (-0.7, 0.0, 0.7)
TARGET = 0.1
NUM_SLOTS, UNTIL_SETTLED = 400, 150
PDSCH_UP_TO_256_QAM = {"mcs_table_index": 2, "mcs_category": 1}


def block_errors(bits: int, code_rate: float, snr_db: float, transmissions: int = 1) -> float:
    """Share of blocks that fail after so many transmissions, added up (chase combining)."""
    num_coded = round(BLOCK_BITS / code_rate / bits) * bits
    from_encoder = min(num_coded, 5 * BLOCK_BITS)  # the mother code's rate is 1/5; lower ones repeat it
    constellation = Constellation("qam", bits)
    encoder = LDPC5GEncoder(BLOCK_BITS, from_encoder, num_bits_per_symbol=bits)
    decoder = LDPC5GDecoder(encoder, hard_out=True, num_iter=20)
    mapper, demapper = Mapper(constellation=constellation), Demapper("app", constellation=constellation)
    noise, sent = torch.tensor(10.0 ** (-snr_db / 10)), BinarySource()([NUM_BLOCKS, BLOCK_BITS])
    word = encoder(sent)
    symbols = mapper(torch.cat([word, word[:, : num_coded - from_encoder]], dim=1))

    def received() -> torch.Tensor:
        soft = demapper(AWGN()(symbols, noise), noise)
        first = soft[:, :from_encoder].clone()
        first[:, : num_coded - from_encoder] += soft[:, from_encoder:]
        return first

    soft = sum((received() for _ in range(transmissions - 1)), received())
    return float(torch.any(decoder(soft) != sent, dim=1).float().mean())


def delivered(snr_db: np.ndarray, efficiency: np.ndarray) -> dict[str, np.ndarray]:
    """Bit/s/Hz and errors of link adaptation to a BLER of 10 %.

    The inner loop knows the SNR and takes the highest MCS that errs in at most 10 % of the blocks; the outer loop
    moves its estimate with every block until 10 % of them fail.
    """
    receiver, found = PHYAbstraction(), {}
    snr = torch.tensor(10.0 ** (snr_db / 10), dtype=torch.float32)
    # One code block each, of about 2,000 bits.
    num_symbols = torch.tensor(np.clip(BLOCK_BITS / np.log2(1 + snr.numpy()), 1, 20_000), dtype=torch.int32)
    inner = InnerLoopLinkAdaptation(receiver, bler_target=TARGET)
    mcs = inner(sinr_eff=snr, num_allocated_re=num_symbols, **PDSCH_UP_TO_256_QAM)
    *_, errors, _ = receiver(mcs, sinr_eff=snr, num_allocated_re=num_symbols, **PDSCH_UP_TO_256_QAM)
    found["inner"] = efficiency[mcs.numpy()] * (1.0 - errors.numpy())
    found["inner_errors"] = errors.numpy()

    outer = OuterLoopLinkAdaptation(receiver, num_ut=len(snr), bler_target=TARGET)
    answer = torch.full((len(snr),), -1, dtype=torch.int32)
    found["outer"], found["outer_errors"] = np.zeros(len(snr)), np.zeros(len(snr))
    for slot in range(NUM_SLOTS):
        mcs = outer(num_allocated_re=num_symbols, sinr_eff=snr, harq_feedback=answer, **PDSCH_UP_TO_256_QAM)
        _, answer, *_ = receiver(mcs, sinr_eff=snr, num_allocated_re=num_symbols, **PDSCH_UP_TO_256_QAM)
        if slot >= UNTIL_SETTLED:
            part = 1.0 / (NUM_SLOTS - UNTIL_SETTLED)
            found["outer"] += part * efficiency[mcs.numpy()] * (answer.numpy() == 1)
            found["outer_errors"] += part * (answer.numpy() == 0)
    return found


if __name__ == "__main__":
    config.seed = 1
    given = np.load(sys.argv[1])
    bits, code_rate, needed_db = given["bits"], given["code_rate"], given["needed_snr_db"]
    with torch.no_grad():
        found = delivered(given["snr_db"], bits * code_rate)
        tried = [(int(bits[mcs]), float(code_rate[mcs]), float(needed_db[mcs])) for mcs in given["tried"]]
        found["failures"] = np.array([[block_errors(b, r, db + more) for more in OFFSETS_DB] for b, r, db in tried])
        found["combined"] = np.array([block_errors(b, r, db, transmissions=2) for b, r, db in tried])
    np.savez(sys.argv[2], **found)
