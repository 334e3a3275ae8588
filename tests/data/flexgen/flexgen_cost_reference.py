#!/usr/bin/env python3
"""FlexGen's cost model, peak-memory formulas and placement LP, in the paper's form and in the released code's form.

Written from the formulas of FlexGen (Sheng et al. 2023), section 4.3 and appendix A.2, A.3. Two forms:
  paper  Tpre and Tgen are the maximum of the five terms (perfect overlap); GPU work memory is the largest candidate
  code   disk and PCIe legs of one direction add up, the weight upload of a decode step is not hidden, decode reads
         weights from disk at 0.95 of the rate, nothing of the activations may be on disk; GPU work memory is a sum
Both take the same constants (`Hardware`); for the paper as printed set the split rates equal and c1 = c2 = c3 = 0.

    python flexgen_cost_reference.py --check flexgen_cost_cases.json      # recompute, compare
    python flexgen_cost_reference.py --fill in.json --out out.json        # compute `expected` of every case

The LP needs scipy (linprog, HiGHS); everything else is plain Python.
"""

import argparse
import dataclasses
import json
import math
import pathlib
from dataclasses import dataclass

GB = float(2**30)
SHARES = ("wg", "wc", "wd", "cg", "cc", "cd", "hg", "hc", "hd")  # weights, KV cache, hidden x GPU, CPU, disk


@dataclass
class Model:
    l: int  # layers
    h1: int  # hidden size
    h2: int  # MLP hidden size
    nh: int  # heads

    def layer_bytes(self):
        return 8.0 * self.h1**2 + 4.0 * self.h1 * self.h2


@dataclass
class Workload:
    s: int  # prompt tokens
    n: int  # generated tokens


@dataclass
class Hardware:
    """Bytes per second and FLOP per second; the defaults are the constants FlexGen ships, fitted on a cloud T4."""

    ctog: float = 12.89 * GB
    gtoc_cache: float = 0.97 * GB
    gtoc_hidden: float = 4.82 * GB
    dtoc: float = 0.473 * GB
    ctod_cache_p: float = 0.746 * GB
    ctod_hidden_p: float = 2.015 * GB
    ctod_g: float = 2.015 * GB
    mm_flops_p: float = 21.24e12
    mm_flops_g: float = 4.3e12
    bmm_flops_p: float = 9.97e12
    bmm_flops_g: float = 0.079e12
    cpu_flops: float = 0.0123e12
    c1: float = 0.0168
    c2: float = 0.0328
    c3: float = 0.0621

    def cpu_rate(self, gbs, h1):
        """CPU attention slows down for small GPU batches and small hidden sizes."""
        small_batch = max(0.0, math.log2(64 / gbs))
        small_hidden = max(0.0, math.log2(4096 / h1))
        factor = 1 + self.c1 * small_batch * small_hidden - self.c2 * small_batch - self.c3 * small_hidden
        return self.cpu_flops * max(0.1, factor)


@dataclass
class Policy:
    gbs: int  # sequences per GPU batch
    K: int  # GPU batches per block
    wg: float = 0.0
    wc: float = 0.0
    wd: float = 0.0
    cg: float = 0.0
    cc: float = 0.0
    cd: float = 0.0
    hg: float = 0.0
    hc: float = 0.0
    hd: float = 0.0

    @property
    def bls(self):
        return self.gbs * self.K


def terms(model, work, hw, p, form):
    """Seconds per layer: of the whole block in prefill (_p), of one token step of the whole block in decode (_g)."""
    W, h1, h2, s, n, bls = model.layer_bytes(), model.h1, model.h2, work.s, work.n, p.bls
    hidden_p, hidden_g = 2.0 * s * h1 * bls, 2.0 * h1 * bls  # activation bytes
    cache_p, cache_g = 4.0 * (s + 1) * h1 * bls, 4.0 * (s + n / 2) * h1 * bls  # KV bytes written, read on average
    weight_disk_rate_g = hw.dtoc * (0.95 if form == "code" else 1.0)
    gpu_comp_g = bls * (8.0 * h1**2 + 4.0 * h1 * h2) / hw.mm_flops_g + p.cg * cache_g / hw.bmm_flops_g
    cpu_comp_g = (p.cc + p.cd) * cache_g / hw.cpu_rate(p.gbs, h1)
    return dict(
        ctog_p=((p.wc + p.wd) * W + (p.hc + p.hd) * hidden_p) / hw.ctog,
        gtoc_p=(p.cc + p.cd) * cache_p / hw.gtoc_cache + (p.hc + p.hd) * hidden_p / hw.gtoc_hidden,
        dtoc_p=(p.wd * W + p.hd * hidden_p) / hw.dtoc,
        ctod_p=p.cd * cache_p / hw.ctod_cache_p + p.hd * hidden_p / hw.ctod_hidden_p,
        comp_p=bls * (8.0 * s * h1**2 + 4.0 * s * h1 * h2) / hw.mm_flops_p + 4.0 * bls * s**2 * h1 / hw.bmm_flops_p,
        ctog_g=((p.wc + p.wd) * W + (p.hc + p.hd) * hidden_g) / hw.ctog,
        gtoc_g=(p.hc + p.hd) * hidden_g / hw.gtoc_hidden,
        dtoc_g=(p.cd * cache_g + p.hd * hidden_g) / hw.dtoc + p.wd * W / weight_disk_rate_g,
        ctod_g=(4.0 * p.cd * bls * h1 + p.hd * hidden_g) / hw.ctod_g,
        comp_g=gpu_comp_g + cpu_comp_g,
    )


def legs(t, form):
    """The sums of which Tpre and of which Tgen is the maximum."""
    if form == "paper":
        return ([t[x + "_p"] for x in ("ctog", "gtoc", "dtoc", "ctod", "comp")],
                [t[x + "_g"] for x in ("ctog", "gtoc", "dtoc", "ctod", "comp")])
    return ([t["ctog_p"] + t["dtoc_p"], t["gtoc_p"] + t["ctod_p"], t["comp_p"]],
            [t["ctog_g"] + t[x] for x in ("gtoc_g", "dtoc_g", "ctod_g", "comp_g")])


def peaks(model, work, p, form):
    """Peak bytes: for every memory and phase a list of candidates, each linear in the shares; the peak is the largest."""
    W, l, h1, h2, nh = model.layer_bytes(), model.l, model.h1, model.h2, model.nh
    s, n, gbs, bls, t = work.s, work.n, p.gbs, p.bls, work.s + work.n
    cache = 4.0 * t * h1 * bls * l  # all KV at full length
    gpu_home_p = p.wg * W * l + p.hg * 2 * s * h1 * bls + p.cg * cache
    gpu_home_g = p.wg * W * l + p.hg * 2 * h1 * bls + p.cg * cache
    staging_p = 2 * (1 - p.wg) * W + (1 - p.hg) * 2 * s * h1 * gbs
    if form == "paper":
        work_p = [8 * gbs * s * h1, p.cg * gbs * (4 * s * h1 + 2 * nh * s**2), 4 * gbs * s * h1, 2 * gbs * s * (h1 + h2)]
        work_g = [8 * gbs * h1, p.cg * gbs * (2 * h1 + 2 * t * h1 + 2 * nh * t), 4 * gbs * h1, 2 * gbs * (h1 + h2)]
        staging_g, cpu_cache_p = staging_p, cache
    else:
        work_p = [8 * gbs * s * h1 + gbs * (2 * s * h1 + 2 * nh * s**2) + 2 * gbs * s * h1 + 4 * gbs * s * h1
                  + 2 * gbs * s * h2 + 2 * gbs * s * h1]
        work_g = [8 * gbs * h1 + p.cg * gbs * (2 * h1 + 2 * t * h1 + 2 * nh * t) + p.cg * gbs * (2 * t * h1 + 2 * h1)
                  + 4 * gbs * h1 + 2 * gbs * h2 + 2 * gbs * h1]
        staging_g = 2 * (1 - p.wg) * W + (1 - p.hg) * 2 * h1 * gbs + p.cg * 4 * gbs * t * h1
        cpu_cache_p = 4.0 * s * h1 * bls * l
    return dict(
        gpu_prefill=[gpu_home_p + staging_p + x for x in work_p],
        gpu_decode=[gpu_home_g + staging_g + x for x in work_g],
        cpu_prefill=[p.wc * W * l + p.hc * 2 * s * h1 * bls + p.cc * cpu_cache_p
                     + (1 - p.wg) * W + (1 - p.hg) * 2 * s * h1 * gbs],
        cpu_decode=[p.wc * W * l + p.hc * 2 * h1 * bls + p.cc * cache + p.wd * W + p.hd * 4 * h1 * gbs
                    + p.cd * 8 * t * h1 * gbs + 2 * nh * t * gbs + 2 * h1 * gbs],
        disk=[p.wd * W * l + p.hd * 2 * s * h1 * bls + p.cd * cache],
    )


def evaluate(model, work, hw, p, form):
    t = terms(model, work, hw, p, form)
    tpre, tgen = (max(leg) for leg in legs(t, form))
    total = tpre * model.l + tgen * (work.n - 1) * model.l
    return dict(terms=t, Tpre=tpre, Tgen=tgen, T=total, throughput=p.bls * work.n / total, seconds_per_request=total / p.bls,
                memory={name: max(values) for name, values in peaks(model, work, p, form).items()})


def solve(model, work, hw, gbs, K, capacity, form):
    """The LP: the nine shares that minimise T / (gbs K) within the capacities (bytes, any safety factor applied).

    Every term and every peak candidate is linear in the shares, so its row is read off the functions above: the value
    at zero, and the slope along each share.
    """
    from scipy.optimize import linprog  # only needed here

    def at(vector):
        p = Policy(gbs, K, **dict(zip(SHARES, vector)))
        pre, gen = legs(terms(model, work, hw, p, form), form)
        memory = [(x / GB, name) for name, values in peaks(model, work, p, form).items() for x in values]
        return pre, gen, memory

    zero = [0.0] * 9
    units = [zero[:i] + [1.0] + zero[i + 1:] for i in range(9)]
    (pre0, gen0, mem0), slopes = at(zero), [at(unit) for unit in units]
    rows, bounds = [], []  # variables: nine shares, Tpre, Tgen
    for which, constants in ((0, pre0), (1, gen0)):
        for i, constant in enumerate(constants):
            row = [slope[which][i] - constant for slope in slopes]
            rows.append(row + ([-1.0, 0.0] if which == 0 else [0.0, -1.0]))
            bounds.append(-constant)
    for i, (constant, name) in enumerate(mem0):
        rows.append([slope[2][i][0] - constant for slope in slopes] + [0.0, 0.0])
        bounds.append(capacity[name.split("_")[0]] / GB - constant)
    equal = [[1.0] * 3 + [0.0] * 8, [0.0] * 3 + [1.0] * 3 + [0.0] * 5, [0.0] * 6 + [1.0] * 3 + [0.0] * 2]
    limits = [(0, None)] * 11
    if form == "code":
        limits[SHARES.index("hd")] = (0, 0)
    cost = [0.0] * 9 + [float(model.l), float(model.l * (work.n - 1))]
    result = linprog(cost, A_ub=rows, b_ub=bounds, A_eq=equal, b_eq=[1.0] * 3, bounds=limits, method="highs")
    if result.status == 2:
        return dict(feasible=False)
    if result.status != 0:
        raise RuntimeError(result.message)
    bls = gbs * K
    return dict(feasible=True, T=result.fun, seconds_per_request=result.fun / bls, throughput=bls * work.n / result.fun,
                Tpre=result.x[9], Tgen=result.x[10], one_optimal_vertex=dict(zip(SHARES, map(float, result.x[:9]))))


def expected(case):
    model, work, hw = Model(**case["model"]), Workload(**case["workload"]), Hardware(**case["hardware"])
    if case["kind"] == "lp":
        return solve(model, work, hw, case["gbs"], case["K"], case["capacity"], case["form"])
    return evaluate(model, work, hw, Policy(**case["policy"]), case["form"])


def differences(have, want, path=""):
    """Paths at which two results differ by more than 1e-9 relative (1e-6 for LP results, which a solver found)."""
    for key, value in want.items():
        if key == "one_optimal_vertex":
            continue
        if isinstance(value, dict):
            yield from differences(have[key], value, f"{path}{key}.")
        elif isinstance(value, bool):
            if have[key] != value:
                yield path + key
        elif not math.isclose(have[key], value, rel_tol=1e-6 if "feasible" in want else 1e-9, abs_tol=1e-12):
            yield f"{path}{key}: {have[key]} != {value}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--fill", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    document = json.loads((options.check or options.fill).read_text())
    failures = 0
    for case in document["cases"]:
        case["hardware"] = dataclasses.asdict(Hardware(**case["hardware"]))  # spells the defaults out
        result = expected(case)
        if options.fill:
            case["expected"] = result
            for name, (value, tolerance) in case.get("published", {}).items():
                have = result["terms"].get(name, result.get(name)) if "terms" in result else result.get(name)
                have = have if have is not None else result["memory"][name] / GB
                agrees = abs(have - value) <= tolerance
                failures += not agrees
                print(f"{case['name']:34} {name:12} {have:12.5g} published {value:g}", "" if agrees else "DISAGREES")
        else:
            for difference in differences(result, case["expected"]):
                failures += 1
                print(case["name"], difference)
    if options.fill:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(document['cases'])} cases, {failures} differences")
    return failures != 0


if __name__ == "__main__":
    raise SystemExit(main())
