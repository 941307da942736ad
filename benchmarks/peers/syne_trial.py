"""One trial of Syne Tune: the script that its local backend starts anew for every trial."""

from argparse import ArgumentParser

from syne_tune import Reporter

from benchmarks.peers.question import Question, train

if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--question")
    parser.add_argument("--index", type=int)
    parser.add_argument("--total", type=int)
    trial, _ = parser.parse_known_args()
    question = Question.load(trial.question)
    report = Reporter()
    for look in train(question.thresholds()[trial.index].spec(trial.total), question.ledger):
        report(accuracy=look.accuracy, steps=look.step)
