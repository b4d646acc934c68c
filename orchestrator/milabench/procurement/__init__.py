"""From measurements to a decision about systems: tenders, offers, scores, costs, budgets, projections, acceptance.

Builds on: acceptance, archives, pages, workbooks.
"""
